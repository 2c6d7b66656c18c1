"""Text of dimensions, which `rlx.ir.dims.dim.parse` reads back."""

from __future__ import annotations

from typing import Any

from rlx.ir.dims.polynomial import Monomial, Terms

CALLS = ("max", "min")


def polynomial_text(terms: Terms) -> str:
    """Return the text of a polynomial over symbols and calls: `2*seq+1`."""
    # Positive terms first: "5-seq" reads better than "-seq+5".
    ordered = sorted(terms, key=lambda term: term[1] < 0)
    pieces: list[str] = []
    for monomial, coefficient in ordered:
        body = _monomial_text(monomial, abs(coefficient))
        if coefficient < 0 and not pieces and len(monomial) == 1 and coefficient == -1:
            body = _factor_text(monomial[0])  # -a//b would parse as (-a)//b
        pieces.append(("-" if coefficient < 0 else "+" if pieces else "") + body)
    return "".join(pieces)


def operand_text(d: Any) -> str:
    """Return a dimension as an operand of `//` or `%`, in brackets where necessary."""
    if isinstance(d, int):
        return str(d) if d >= 0 else f"({d})"
    (monomial, coefficient), *rest = d.terms
    return _factor_text(monomial[0]) if not rest and len(monomial) == coefficient == 1 else f"({d})"


def _factor_text(atom: Any) -> str:
    return str(atom) if isinstance(atom, str) or atom.kind in CALLS else f"({atom})"


def _monomial_text(monomial: Monomial, coefficient: int) -> str:
    if len(monomial) == 1 and coefficient == 1:
        return str(monomial[0])
    factors = [] if coefficient == 1 else [str(coefficient)]
    return "*".join(factors + [_factor_text(atom) for atom in monomial]) or str(coefficient)
