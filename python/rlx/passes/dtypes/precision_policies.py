"""Named policies for the option `precision=`, as passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.shape import as_dtype
from rlx.passes.dtypes.precision import Precision
from rlx.support.errors import Error
from rlx.support.guards import is_mapping
from rlx.support.short import short_repr


@dataclass(frozen=True)
class PrecisionPolicy:
    """The compute dtypes of a program.

    Attributes:
        name: The name in messages and reports.
        passes: The passes that lower a graph accordingly; empty for no change.
    """

    name: str
    passes: tuple[Precision, ...] = ()

    def computes_in(self, dtype: str) -> bool:
        """Whether any computation uses a dtype, `"f16"` or `"bf16"`."""
        return any(step.to == dtype for step in self.passes)


_NAMED = {
    "f32": (),
    "f16": (Precision("f16"),),
    "bf16": (Precision("bf16"),),
    "always_f32": (),
    "always_f16": (Precision("f16", "always"),),
    "auto_mixed_conservative": (Precision("f16", "mixed_conservative"),),
    "auto_mixed": (Precision("f16", "mixed"),),
    "auto_mixed_bf16": (Precision("bf16", "mixed"),),
}
PRECISIONS = tuple(_NAMED)


def precision_policy(precision: Any) -> PrecisionPolicy:
    """Return the policy for a name or dtype, or for a mapping of ops or kinds to dtypes (all others f32). None is f32.

    Raises:
        Error: The policy does not exist, or a dtype is not supported for computation.
    """
    if is_mapping(precision):
        return _custom(dict(precision))
    name = "f32" if precision is None else getattr(precision, "name", precision)
    if not isinstance(name, str) or name not in _NAMED:
        raise Error(
            f"precision must be one of {', '.join(PRECISIONS)}, got {short_repr(precision)}",
            hint='or a mapping of ops to dtypes, such as {"matmul": "f16"}',
        )
    return PrecisionPolicy(name, _NAMED[name])


def _custom(chosen: dict[Any, Any]) -> PrecisionPolicy:
    by_dtype: dict[str, list[str]] = {"f32": [], "f16": [], "bf16": []}
    for op, dtype in chosen.items():
        name = as_dtype(dtype).name
        if not isinstance(op, str) or name not in by_dtype:
            raise Error(f"precision maps names of ops to f32, f16 or bf16, got {short_repr(op)}: {short_repr(dtype)}")
        by_dtype[name].append(op)
    passes = tuple(
        Precision(name, "custom", lower=tuple(sorted(by_dtype[name]))) for name in ("f16", "bf16") if by_dtype[name]
    )
    return PrecisionPolicy("custom", passes)
