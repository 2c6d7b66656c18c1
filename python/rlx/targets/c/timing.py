"""Instructions and cycles of Thumb code: the widths of instructions, and the timing of a Cortex-M4.

Source of the cycles: ARM DDI 0439, "Cortex-M4 Technical Reference Manual", table 3-1. Memory has no wait states, a taken branch
takes two cycles to refill the pipeline (the manual says one to three), and a division six (two to twelve).
"""

from __future__ import annotations

from collections.abc import Iterator

_REFILL, _DIVISION, _FLOAT_DIVISION = 2, 6, 14


def instructions_of(code: bytes) -> Iterator[tuple[int, int]]:
    """Yield each instruction of some Thumb code as two halfwords. The second one of a short instruction is 0."""
    place = 0
    while place < len(code):
        first = code[place] | code[place + 1] << 8
        if first >> 11 >= 0b11101 and place + 3 < len(code):
            yield first, code[place + 2] | code[place + 3] << 8
            place += 4
        else:
            yield first, 0
            place += 2


def cycles_of(code: bytes) -> int:
    """Return the cycles of a basic block on a Cortex-M4, without those that refill the pipeline after a taken branch."""
    total, after_load = 0, False
    for first, second in instructions_of(code):
        count = _short(first) if first >> 11 < 0b11101 else _long(first, second)
        is_load = count == _LOAD
        total += 1 if is_load and after_load else abs(count)
        after_load = is_load
    return total


def refill(taken: int) -> int:
    """Return the cycles that taken branches add."""
    return _REFILL * taken


# Two cycles, or one directly after another load: the address phase overlaps with the data phase before.
_LOAD = -2


def _short(word: int) -> int:
    top = word >> 8
    if top >> 3 == 0b01001 or 0x56 <= top <= 0x5F or top >> 3 in (0b01101, 0b01111, 0b10001, 0b10011):
        return _LOAD  # LDR from the literal pool, by a register, by a number, from the stack
    if top in (0xB4, 0xB5, 0xBC, 0xBD):  # PUSH and POP
        return 1 + (word & 0xFF).bit_count() + (top & 1)
    if top >> 4 == 0xC:  # LDM and STM
        return 1 + (word & 0xFF).bit_count()
    return 1


def _long(first: int, second: int) -> int:
    if first >> 9 == 0b1110100:
        if first & 0x40:  # LDRD, STRD, and exclusive ones
            return 3
        return 1 + second.bit_count()  # LDM and STM
    if first >> 9 == 0b1111100 and first & 0x10:
        return _LOAD
    if first & 0xFFD0 == 0xFB90 and second & 0xF0 == 0xF0:  # SDIV and UDIV
        return _DIVISION
    if first >> 9 in (0b1110110, 0b1111110):  # the floating-point unit's memory accesses
        if first & 0x120 == 0x100:
            return _LOAD if first & 0x10 else 1
        return 1 + (second & 0xFF)
    if first & 0xEF00 == 0xEE00 and second & 0xE00 == 0xA00 and not second & 0x10:
        kind = first & 0xB0
        if kind == 0x80 or (kind == 0xB0 and second & 0xC0 == 0xC0 and first & 0xF == 1):
            return _FLOAT_DIVISION  # VDIV and VSQRT
        return 3 if kind in (0x00, 0x10, 0x90, 0xA0) else 1  # products with a sum, or others
    return 1
