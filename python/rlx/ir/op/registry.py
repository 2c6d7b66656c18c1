"""The registry of cards: one card for each op of the dialect."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING

from rlx import mlir
from rlx.dialect import spec_gen
from rlx.parts import CARDS
from rlx.support.errors import Error
from rlx.support.suggestions import suggestion

if TYPE_CHECKING:
    from rlx.dialect.spec import OpSpec
    from rlx.ir.op.card import Card

SPECS: dict[str, OpSpec] = {spec.name: spec for spec in spec_gen.OPS}
_cards: dict[str, Card] = {}


def register(cls: type[Card], name: str) -> None:
    """Register a card. Called by `class X(Card, op=name)`.

    Raises:
        Error: The dialect has no such op, or it has a card already.
    """
    if name not in SPECS:
        raise Error(
            f"{cls.__qualname__}: the dialect has no op '{name}'{suggestion(name, SPECS)}",
            hint="declare it in dialect/*.td and run `make dialect`",
        )
    if name in _cards:
        raise Error(f"op '{name}' has two cards: {type(_cards[name]).__qualname__} and {cls.__qualname__}")
    cls.spec = SPECS[name]
    _cards[name] = cls()


def register_custom(card: Card, name: str) -> None:
    """Register the card of a user's op. The same class may be registered again, for instance when its file is run twice.

    Raises:
        Error: Another class has registered the name.
    """
    registered_card = _cards.get(name)
    if registered_card is not None and registered_card.spec.defined_at != card.spec.defined_at:
        raise Error(f"custom op '{name}' has two cards: {registered_card.spec.defined_at} and {card.spec.defined_at}")
    _cards[name] = card


@cache
def load() -> dict[str, Card]:
    """Return all cards, by op name."""
    for package in CARDS:
        importlib.import_module(package)
    return _cards


def registered() -> dict[str, Card]:
    """Return the cards of the dialect's ops that are registered so far, by op name."""
    return {name: card for name, card in _cards.items() if not card.spec.custom}


def card(name: str) -> Card:
    """Return the card of an op, with or without the `rlx.` prefix.

    Raises:
        Error: There is no such op.
    """
    name = name.removeprefix("rlx.")
    registered_card = _cards.get(name) or load().get(name)
    if registered_card is None and "." in name:
        raise Error(
            f"no custom op '{name}' is registered{suggestion(name, load())}",
            hint="import the module that defines it; on the command line, --load=FILE.py",
        )
    if registered_card is None and name in SPECS:
        message = f"rlx.{name} is declared in {SPECS[name].defined_at}, and has no card"
        raise Error(message, hint=f'write it: class …(Card, op="{name}") in python/rlx/ops or python/rlx/blocks')
    if registered_card is None:
        raise Error(f"there is no op 'rlx.{name}'{suggestion(name, load())}")
    return registered_card


def is_ours(op: mlir.Operation) -> bool:
    """Whether an MLIR op belongs to the rlx dialect."""
    return op.name.startswith("rlx.")


def _attach(_context: object) -> None:
    from rlx.ir.op.verify import verify_op

    load()
    for name, spec in SPECS.items():
        mlir.attach_pure(f"rlx.{name}")
        if spec.terminator:
            mlir.attach_terminator(f"rlx.{name}")
        mlir.attach_verifier(f"rlx.{name}", verify_op)
    mlir.provide_dialect("rlx", importlib.import_module("rlx.ir.op.op_classes"))


mlir.on_context(_attach)
