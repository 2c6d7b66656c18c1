"""The op that represents every user-registered op; see `rlx.CustomOp`."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false, reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from rlx.ir.graph.builder import Builder
from rlx.ir.op import registry
from rlx.ir.op.card import Attributes, Card, OpSample
from rlx.ir.op.custom import CustomOp
from rlx.ir.shape import Shape
from rlx.support.errors import ShapeError


class Custom(Card, op="custom"):
    def infer(self, inputs: list[Shape], *, name: str, attributes: Attributes) -> NoReturn:
        raise ShapeError(f"no custom op '{name}' is registered")

    def build(self, b: Builder, /, op: type[CustomOp] | str, *args: Any, **kwargs: Any) -> Any:
        """`op` is the class or its name; the other arguments are those of the registered op.

        Its card (`rlx.CustomOp`) defines inference, evaluator, decomposition or lowering, and rules.

        Own arguments:
            args: The operands of the op.
        """
        if isinstance(op, type) and issubclass(op, CustomOp):
            if "spec" not in vars(op):
                hint = f'class {op.__name__}(rlx.CustomOp, name="library.op")'
                raise ShapeError(f"the class {op.__qualname__} has no name=, so it is no op", hint=hint)
            op = op.spec.name
        if not isinstance(op, str):
            raise ShapeError(f"op must be a subclass of rlx.CustomOp or its name, got {op!r}")
        card = registry.card(op)
        if not card.spec.custom:
            raise ShapeError(f"'{op}' is an op of the dialect: use g.{op}(…)")
        return card.build(b, *args, **kwargs)

    def samples(self) -> Iterable[OpSample]:
        return ()
