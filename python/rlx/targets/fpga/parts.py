"""The FPGAs that designs are made for, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class FpgaPart:
    """An FPGA.

    Attributes:
        name: Its name here.
        title: What it is.
        luts: Tables of logic.
        registers: Bits of registers in them.
        multipliers: Hardware multipliers.
        memories: Blocks of memory.
        factor_bits: The widest signed factor of a multiplier.
        least_product: Products of fewer bits than this are made of logic.
        sum_luts: Tables for a bit of a sum, measured: what is constant or shared takes none.
        logic_luts: Tables for one of four inputs, measured likewise.
        packed: Bits of registers that a multiplier takes in, as stages of its pipeline.
        rom_bits: The bits of a constant that a table holds.
        least_rom: Constants are made of tables if they are fewer bits than this for each block.
        small: The words, the bits and the tables of a small memory that is made of tables; None if there are none.
        modes: The words and the bits of a word that a block of memory may have.
        frequency: What a design is to reach if nothing is said, in MHz.
        synthesis: What yosys runs for it.
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
