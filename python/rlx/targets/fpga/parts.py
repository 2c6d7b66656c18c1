"""Data of the supported FPGAs."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class FpgaPart:
    """An FPGA.

    Attributes:
        name: The name in RLX.
        title: The name of the product.
        luts: Lookup tables.
        registers: Bits of registers.
        multipliers: Hardware multipliers.
        memories: Blocks of memory.
        factor_bits: The widest signed factor of a multiplier.
        least_product: Products of fewer bits than this are made of logic.
        sum_luts: Tables for each bit of a sum. This is a measured mean: constant or shared bits need no table.
        logic_luts: Tables for each four-input function; also a measured mean.
        packed: Bits of pipeline registers inside a multiplier.
        rom_bits: The number of constant bits in a table.
        least_rom: Constants with fewer bits than this for each block are made of tables.
        small: Words, bits and tables of a small memory made of tables; None if there are none.
        modes: Pairs of words and bits of a word for the modes of a block of memory.
        frequency: The default clock in MHz.
        synthesis: The synthesis command of yosys.
    """

    name: str
    title: str
    luts: int
    registers: int
    multipliers: int
    memories: int
    factor_bits: int
    least_product: int
    sum_luts: float
    logic_luts: float
    packed: int
    rom_bits: int
    least_rom: int
    small: tuple[int, int, int] | None
    modes: tuple[tuple[int, int], ...]
    frequency: int
    synthesis: str


_ECP5_25K = FpgaPart(
    "ecp5-25k", "Lattice ECP5 LFE5U-25F", 24288, 24288, 28, 56, 18, 0, 0.53, 1.3, 0, 16, 2048, (16, 4, 6),
    ((16384, 1), (8192, 2), (4096, 4), (2048, 9), (1024, 18), (512, 36)), 80, "synth_ecp5",
)  # fmt: skip
PARTS = {
    part.name: part
    for part in (
        _ECP5_25K,
        replace(
            _ECP5_25K, name="ecp5-85k", title="Lattice ECP5 LFE5U-85F",
            luts=83640, registers=83640, multipliers=156, memories=208,
        ),
        FpgaPart(
            "ice40-up5k", "Lattice iCE40 UP5K", 5280, 5280, 8, 30, 16, 11, 0.42, 0.92, 0, 6, 1024, None,
            ((2048, 2), (1024, 4), (512, 8), (256, 16)), 20, "synth_ice40 -dsp",
        ),
        FpgaPart(
            "xc7", "AMD Artix-7 XC7A35T", 20800, 41600, 90, 100, 18, 9, 0.1, 1.7, 30, 64, 2048, (64, 3, 4),
            ((16384, 1), (8192, 2), (4096, 4), (2048, 9), (1024, 18), (512, 36)), 100, "synth_xilinx -family xc7 -flatten",
        ),
    )
}  # fmt: skip
DEFAULT_PART = "ecp5-25k"
