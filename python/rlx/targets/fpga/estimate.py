"""Resource estimates for designs, before synthesis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from rlx.targets.fpga.lower.hdl import HdlMemory, HdlModule
from rlx.targets.fpga.parts import FpgaPart

# Memories with fewer bits or words are made of logic.
_LEAST_BLOCK = 1024
_LEAST_DEPTH = 32
# The fraction of registers left after synthesis removes constant and shared ones; measured on the designs of docs/fpga.md.
_REGISTERS = 0.95


@dataclass(frozen=True)
class ResourceCost:
    """The resources of a design or a module. `FpgaPart` has the resources of a part."""

    luts: int = 0
    registers: int = 0
    multipliers: int = 0
    memories: int = 0

    def __add__(self, other: ResourceCost) -> ResourceCost:
        return ResourceCost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def beyond(self, part: FpgaPart) -> list[str]:
        """The resources that exceed those of a part, as text."""
        names = {"luts": "LUTs", "registers": "registers", "multipliers": "multipliers", "memories": "memory blocks"}
        return [
            f"{getattr(self, n)} {title}, {getattr(self, n) - getattr(part, n)} more than the {getattr(part, n)} there are"
            for n, title in names.items()
            if getattr(self, n) > getattr(part, n)
        ]


def cost_of(module: HdlModule, part: FpgaPart) -> ResourceCost:
    """Return the resources of a module and its memories."""
    tally = module.tally
    multipliers, luts = 0, tally.sums * part.sum_luts + tally.logic * part.logic_luts
    for left, right in tally.products:
        if min(left, right) < 2 or left + right < part.least_product:
            luts += left * right
        else:
            multipliers += _pieces(left, part.factor_bits) * _pieces(right, part.factor_bits)
    # Synthesis treats a product with a constant as unsigned, with the width of the result.
    for left, right in tally.scalings:
        multipliers += -(-(left + right) // part.factor_bits)
    blocks = 0
    for memory in module.memories:
        tables = _tables(memory, part)
        if tables is None:
            blocks += blocks_of(memory, part)
        else:
            luts += tables
    registers = max(tally.registers * _REGISTERS - multipliers * part.packed, 0)
    return ResourceCost(round(luts), round(registers), multipliers, blocks)


def _tables(memory: HdlMemory, part: FpgaPart) -> float | None:
    """Return the number of tables for a small memory; None if it is made of blocks."""
    if memory.words is not None:
        # Synthesis uses blocks for constants that fill most of them.
        widest = max(bits for _, bits in part.modes)
        worth = part.least_rom * (blocks_of(memory, part) + memory.width / widest)
        return memory.bits / part.rom_bits if memory.bits < worth else None
    if part.small is None or (memory.bits >= _LEAST_BLOCK and memory.depth >= _LEAST_DEPTH):
        return None
    words, bits, luts = part.small
    return -(-memory.depth // words) * -(-memory.width // bits) * luts


def total(modules: Iterable[HdlModule], part: FpgaPart) -> ResourceCost:
    """Return the total resources of several modules."""
    result = ResourceCost()
    for module in modules:
        result += cost_of(module, part)
    return result


def blocks_of(memory: HdlMemory, part: FpgaPart) -> int:
    """Return the number of blocks for a memory, in their best mode."""
    return min(-(-memory.depth // words) * -(-memory.width // bits) for words, bits in part.modes)


def _pieces(width: int, most: int) -> int:
    return 1 if width <= most else -(-(width - 1) // (most - 1))
