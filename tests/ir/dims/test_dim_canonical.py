from __future__ import annotations

import itertools

import pytest

from rlx.ir.dims.dim import Dim, evaluate, parse, symbol

SIZES = [{"x": x, "y": y} for x in range(14) for y in (0, 1, 2, 5)]
X, Y = symbol("x"), symbol("y")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("past + seq", "past+seq"),
        ("seq + past", "past+seq"),
        ("2*seq", "2*seq"),
        ("seq*2", "2*seq"),
        ("seq + seq", "2*seq"),
        ("5 - seq", "5-seq"),
        ("-seq", "-seq"),
        ("1 + batch*seq", "batch*seq+1"),
        ("seq*batch*seq", "batch*seq*seq"),
        ("(batch+1)*(seq-1)", "batch*seq+seq-batch-1"),
        ("(4*seq)//2", "2*seq"),
        ("(batch*seq)//seq", "batch"),
        ("(a+b)*(a-b)//(a+b)", "a-b"),
        ("(4*seq+3)//4", "seq"),
        ("(3*seq)//2", "seq+seq//2"),
        ("(6*seq)//(4*past)", "(3*seq)//(2*past)"),
        ("(batch*seq+past)//seq", "batch+past//seq"),
        # The output size of a convolution, and ways to round up.
        ("(seq-1)//2+1", "(seq-1)//2+1"),
        ("(seq+1)//2", "(seq-1)//2+1"),
        ("(seq+3)//4", "(seq-1)//4+1"),
        ("-(-seq//4)", "(seq-1)//4+1"),
        ("((seq-1)//2+1-1)//2+1", "(seq-1)//4+1"),
        ("(seq+2)//6", "(seq+2)//6"),
        ("seq//2//3", "seq//6"),
        ("seq//block//2", "seq//(2*block)"),
        ("-(seq//2)", "-(seq//2)"),
        ("2*(seq//2)", "2*(seq//2)"),
        ("past-seq//2", "past-seq//2"),
        ("seq%1", "0"),
        ("(4*seq+5)%4", "1"),
        ("(2*seq)%4", "2*(seq%2)"),
        ("seq%8%4", "seq%4"),
        ("(-seq)%8", "(-seq)%8"),
        ("(-seq)%8+seq", "seq+(-seq)%8"),
        ("(2*seq)//4", "seq//2"),
        ("(2*seq+1)//4", "seq//2"),
        ("(2*seq+3)%4", "2*((seq+1)%2)+1"),
        ("(seq%4)//4", "0"),
        ("(seq%4+8)//4", "2"),
        ("(seq%4+8)%8", "seq%4"),
        ("(seq//2)//(past+1)", "seq//(2*past+2)"),
        ("(seq//2)//(past-1)", "(seq//2)//(past-1)"),
        ("seq//(1-past)", "(-seq)//(past-1)"),
        ("seq%(1-past)", "-((-seq)%(past-1))"),
        ("(batch*seq+past)%seq", "past%seq"),
        ("seq%(seq+1)", "seq"),
        ("seq//-2", "-((seq-1)//2)-1"),
        ("max(seq,0)", "seq"),
        ("max(seq,seq+1)", "seq+1"),
        ("min(seq,seq+1)", "seq"),
        ("max(1,seq,max(past,2))", "max(past,seq,2)"),
        ("max(seq)", "seq"),
        ("min(b,a)", "min(a,b)"),
        ("max(a,b)//3*2", "2*(max(a,b)//3)"),
        ("max(3,5)", "5"),
        ("-7//2", "-4"),
        ("-7%4", "1"),
    ],
)
def test_canonical_form(text: str, expected: str):
    assert str(parse(text)) == expected
    assert str(parse(expected)) == expected


def agree(d: Dim, values: list[int]) -> bool:
    return [evaluate(d, sizes) for sizes in SIZES] == values


# Every small case of the rules for division by a constant, compared with Python's integers.

SMALL = range(-3, 6)
DIVISORS = (-4, -3, 2, 3, 4, 6)


@pytest.mark.parametrize("divisor", DIVISORS)
def test_one_division(divisor: int):
    for a, b, c in itertools.product(SMALL, (-2, 0, 3), SMALL):
        d = a * X + b * Y + c
        values = [a * s["x"] + b * s["y"] + c for s in SIZES]
        assert agree(d // divisor, [v // divisor for v in values])
        assert agree(d % divisor, [v % divisor for v in values])


@pytest.mark.parametrize("first", DIVISORS)
@pytest.mark.parametrize("second", DIVISORS)
def test_a_division_of_a_division(first: int, second: int):
    for a, b, c in itertools.product((-2, 1, 3), (-2, 0, 1, 2), (-4, 0, 1, 5)):
        inner = X + c
        values = [s["x"] + c for s in SIZES]
        rest = [b * s["y"] + c for s in SIZES]
        for outer in (lambda v: v // second, lambda v: v % second):
            quotient = outer(a * (inner // first) + b * Y + c)
            assert agree(quotient, [outer(a * (v // first) + r) for v, r in zip(values, rest, strict=True)])
            remainder = outer(a * (inner % first) + b * Y + c)
            assert agree(remainder, [outer(a * (v % first) + r) for v, r in zip(values, rest, strict=True)])
