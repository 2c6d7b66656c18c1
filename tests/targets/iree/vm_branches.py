"""IREE's input for a graph, and the values that VM branches forward, read from the disassembly of a program.

A branch sets the registers of its target one by one. It is wrong if it reads a register that it has already set or moved away,
or if it moves away a register that the target also reads. A branch that forwards numbers of both widths may be wrong with other
registers. Quirks: `moved-away`, `numbers-overwritten`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import iree._runtime_libs

from rlx.passes.runner import run_on_module
from rlx.targets.dispatch import with_kernels
from rlx.targets.iree.backend import module_text
from rlx.targets.iree.pipeline import lowering_passes
from rlx.targets.iree.targets import target
from rlx.targets.options import CompileOptions
from rlx.targets.stages import lower

_TOOL = Path(iree._runtime_libs.__file__).parent / "iree-dump-module"
_BRANCH = re.compile(r"\s+vm\.(cond_br|br)\b")
_LABEL = re.compile(r"\^bb(\d+):")
_TARGET = re.compile(r"\^bb(\d+)\(([^)]*)\)")


def lowered(graph: Any, without: str | None = None) -> str:
    """IREE's input for a graph without kernels, optionally without one pass of the pipeline."""
    work = graph.clone()
    run_on_module(work.module, with_kernels(target("cpu"), CompileOptions(kernels="off")))
    passes = lowering_passes(target("cpu")).split(",")
    lower(work.module, ",".join(p for p in passes if p != without))
    return module_text(work.module)


def wrong_branches(vmfb: bytes, folder: Path) -> list[str]:
    """The wrong branches of a program, except those that are never taken."""
    path = folder / "program.vmfb"
    path.write_bytes(vmfb)
    command = [str(_TOOL), "--output=disassembly", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    functions = [lines for part in text.split("\nvm.func") if (lines := part.split("\n"))]
    return [line for lines in functions for line in _wrong(lines)]


def _wrong(lines: list[str]) -> list[str]:
    branches = [line for line in lines if _BRANCH.match(line)]
    others = "\n".join(line for line in lines if not _BRANCH.match(line)).lower()
    used = set(re.findall(r"%[ir]\d+", others)) | {f"%i{int(low) + 1}" for low in re.findall(r"%i(\d+):", others)}
    read = _read_references(lines)
    edges = [(line, block, moves) for line in branches for block, moves in _edges(line)]
    return [line for line, block, moves in edges if _is_wrong(moves, read[block], used)]


def _read_references(lines: list[str]) -> dict[str, set[str]]:
    """The reference registers that each block or its successors read before setting them."""
    blocks: dict[str, list[str]] = {}
    for line in lines:
        if label := _LABEL.match(line):
            blocks[label[1]] = []
        elif blocks:
            blocks[list(blocks)[-1]].insert(0, line)
    read: dict[str, set[str]] = {name: set() for name in blocks}
    while True:
        found = {name: _read_before(block, read) for name, block in blocks.items()}
        if found == read:
            return read
        read = found


def _read_before(block: list[str], read: dict[str, set[str]]) -> set[str]:
    """The registers that a block, given in reverse order of lines, reads before setting them."""
    needed: set[str] = set()
    for line in block:
        text = line.lower()
        for block_read, moves in _TARGET.findall(text):
            needed |= read[block_read] - set(re.findall(r"->(%r\d+)", moves))
        mentioned = set(re.findall(r"(?<!->)%r\d+", text))
        is_set = set(re.findall(r"%r\d+", text.partition(" = ")[0])) if " = " in text else set()
        if "vm.discard.refs" in text:
            is_set, mentioned = mentioned, set()
        needed = (needed - is_set) | (mentioned - is_set) | set(re.findall(r"%r\d+", text.partition(" = ")[2]))
    return needed


def _edges(line: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The targets of a branch, each with its moves of registers: source and destination."""
    found = [
        (target, [(source, to) for move in moves.split(", ") if "->" in move for source, to in [move.split("->")]])
        for target, moves in _TARGET.findall(line)
    ]
    # In a conditional branch with the same block twice, the second destination is never taken: see `rlx-iree-branches`.
    return found[:1] if len(found) == 2 and found[0][0] == found[1][0] else found


def _is_wrong(moves: list[tuple[str, str]], read: set[str], used: set[str]) -> bool:
    if _passes_both_widths(moves):
        return True
    written: set[str] = set()
    moved: set[str] = set()
    every = {to for _, to in moves}
    for source, to in moves:
        register = source.lower()
        if register in moved or (register in written and register in used):  # other registers are temporaries
            return True
        if source.startswith("%R"):
            moved.add(register)
            if register in read and register not in every:
                return True
        written.add(to)
    return False


def _passes_both_widths(moves: list[tuple[str, str]]) -> bool:
    """Whether 32-bit and 64-bit numbers are forwarded. Overwrites depend on the registers."""
    numbers = [(int(source[2:]), int(to[2:])) for source, to in moves if source[:2].lower() == "%i"]
    wide = {(s, t) for s, t in numbers if s % 2 == t % 2 == 0 and (s + 1, t + 1) in numbers}
    narrow = [n for n in numbers if n not in wide and (n[0] - 1, n[1] - 1) not in wide]
    return bool(wide and narrow)
