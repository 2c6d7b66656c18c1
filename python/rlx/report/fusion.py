"""The fusion report: which ops were fused between two stages, and which patterns could have been."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rlx import mlir
from rlx.ir import opview, registry
from rlx.ir.errors import Error
from rlx.ir.graph import Graph
from rlx.ir.opview import label_of, place_of
from rlx.ir.shape import Shape, shape_of
from rlx.passes.rewrite import collect
from rlx.report.text import counts_text, short_place


class MissReason(Enum):
    """Why a pattern did not fuse."""

    MULTI_CONSUMER = "an intermediate result has other readers"
    NON_ADD_BIAS_CONSUMER = "the product is not followed by the addition of a bias"
    BIAS_RANK_TOO_HIGH = "the bias is not a vector"
    UNSUPPORTED_EPILOGUE_ACTIVATION = "the fused op does not know the activation"
    SHARED_MATMUL_COUNT = "several products read one input"
    SWIGLU_NOT_SHARED_INPUT = "the two products of a SwiGLU read different inputs"
    NOT_FUSED = "nothing is in the way, but no pass fused it"


@dataclass(frozen=True)
class Miss:
    """A pattern that stayed unfused.

    Attributes:
        pattern: The pattern, such as `"matmul + bias"`.
        reason: Why it did not fuse.
        detail: Details of the reason: a rank, a count, the name of an op; may be empty.
        hint: What to do about it.
        location: The user's `file:line` of the op that would be the root, empty when unknown.
    """

    pattern: str
    reason: MissReason
    detail: str
    hint: str
    location: str

    def __str__(self) -> str:
        place = f"{short_place(self.location)}: " if self.location else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{place}{self.pattern}: {self.reason.value}{detail}; {self.hint}"


@dataclass(frozen=True)
class FusionReport:
    """The fused ops and the missed fusions. `str()` is the report.

    Attributes:
        before: The numbers of ops in the first stage, by name.
        after: The numbers of ops in the second stage.
        missed: The patterns that stayed unfused in the second stage, in program order.
    """

    before: Counter[str]
    after: Counter[str]
    missed: tuple[Miss, ...]

    @property
    def fused(self) -> Counter[str]:
        """The fused ops of the second stage."""
        return Counter({name: n for name, n in self.after.items() if registry.card(name).spec.family == "fused"})

    def assert_clean(self) -> None:
        """Check that no pattern stayed unfused.

        Raises:
            Error: Patterns did; the message lists all of them.
        """
        if self.missed:
            lines = "\n".join(f"  {miss}" for miss in self.missed)
            raise Error(f"{len(self.missed)} patterns stayed unfused:\n{lines}")

    def summary(self) -> str:
        """One line."""
        total = f"{self.before.total()} ops became {self.after.total()}"
        return f"fusion: {total}; fused: {counts_text(self.fused)}; missed: {len(self.missed)}"

    def __str__(self) -> str:
        lines = [self.summary(), f"  before: {counts_text(self.before)}", f"  after:  {counts_text(self.after)}"]
        for text, count in Counter(map(str, self.missed)).items():
            lines.append(f"  missed {f'{count} times ' if count > 1 else ''}{text}")
        return "\n".join(lines) + "\n"


def analyse_fusion(before: Graph, after: Graph) -> FusionReport:
    """Compare two stages of a graph, and look for patterns in the second that could have been fused.

    Args:
        before: The graph before the fusions.
        after: The graph with its fusions done: MIR.
    """
    return FusionReport(_counts(before), _counts(after), tuple(_misses(after)))


def _counts(graph: Graph) -> Counter[str]:
    return Counter(opview.name_of(op) for op in collect(graph.module))


# --- patterns -------------------------------------------------------------------------------------

_RUN_FUSE = "run rlx-fuse, or compile with the policy 'direct'"


def _misses(graph: Graph) -> Iterator[Miss]:
    shared: dict[Any, list[Any]] = {}
    for op in collect(graph.module):
        name = op.name[4:]
        if name == "matmul" and shape_of(op.operands[1]).rank == 2:
            shared.setdefault(op.operands[0], []).append(op)
            yield from _bias(op)
        elif name == "fused_matmul_bias_act":
            shared.setdefault(op.operands[0], []).append(op)
            yield from _epilogue(op)
        elif name in ("layer_norm", "rms_norm"):
            yield from _residual(op)
        elif name == "binary" and label_of(op) == "mul":
            yield from _swiglu(op)
    for products in shared.values():
        if len(products) > 1:
            yield Miss(
                "matmuls of one input",
                MissReason.SHARED_MATMUL_COUNT,
                f"{len(products)} of them",
                "join their weights with concat, multiply once, and take the parts with narrow",
                place_of(products[0]),
            )


def _bias(product: Any) -> Iterator[Miss]:
    """matmul, add of a bias, activation."""

    def miss(pattern: str, reason: MissReason, detail: str, hint: str) -> Miss:
        return Miss(pattern, reason, detail, hint, place_of(product))

    width = shape_of(product.results[0]).dims[-1]
    users = _users(product)
    adds = [u for u in users if _is_op(u, "binary", "add") and _bias_of(u, product, width) is not None]
    if not adds:
        other_user = next((u for u in users if _is_op(u, "activation") or _is_op(u, "binary", "sub")), None)
        if len(users) == 1 and other_user is not None:
            hint = "add a bias, which may be zero, before the activation"
            if not _is_op(other_user, "activation"):
                hint = "negate the vector and add it"
            yield miss("matmul + bias", MissReason.NON_ADD_BIAS_CONSUMER, f"but by {label_of(other_user)}", hint)
        return
    if len(users) > 1:
        hint = "compute the product once more, or use the biased result in its place"
        yield miss("matmul + bias", MissReason.MULTI_CONSUMER, f"{len(users)} readers of the product", hint)
        return
    bias = _bias_of(adds[0], product, width)
    assert bias is not None
    if bias.rank > 1:
        hint = f"give the bias as a vector of {width} elements"
        yield miss("matmul + bias", MissReason.BIAS_RANK_TOO_HIGH, f"rank {bias.rank}", hint)
        return
    then = _only_user(adds[0])
    pattern = "matmul + bias"
    if then is not None and _is_op(then, "activation"):
        if _is_epilogue(then):
            pattern += f" + {label_of(then)}"
        else:
            hint = "the activation stays an op of its own"
            yield miss(f"{pattern} + {label_of(then)}", MissReason.UNSUPPORTED_EPILOGUE_ACTIVATION, "", hint)
    yield miss(pattern, MissReason.NOT_FUSED, "", _RUN_FUSE)


def _epilogue(product: Any) -> Iterator[Miss]:
    """An activation after a product that is already fused with its bias."""
    spec = registry.SPECS["fused_matmul_bias_act"]
    has_one = any(a.name == "activation" and a.name in product.attributes for a in spec.attributes)
    then = _only_user(product)
    if has_one or then is None or not _is_op(then, "activation"):
        return
    is_supported = _is_epilogue(then)
    reason = MissReason.NOT_FUSED if is_supported else MissReason.UNSUPPORTED_EPILOGUE_ACTIVATION
    hint = "give activation= to the linear layer" if is_supported else "the activation stays an op of its own"
    yield Miss(f"fused matmul + {label_of(then)}", reason, "", hint, place_of(then))


def _residual(norm: Any) -> Iterator[Miss]:
    """An addition of equal shapes, then a norm along the last axis."""
    x = norm.operands[0]
    add = _producer(x, "binary")
    if add is None or label_of(add) != "add" or norm.attributes["axis"].value != shape_of(x).rank - 1:
        return
    if any(shape_of(v).dims != shape_of(x).dims for v in add.operands):
        return
    pattern = f"residual + {norm.name[4:]}"
    users = _users(add)
    if len(users) > 1 or _is_returned(add):
        hint = "the fused op gives the norm only; nothing to do where the sum is needed, as before a pre-norm layer"
        yield Miss(pattern, MissReason.MULTI_CONSUMER, "the sum is read elsewhere too", hint, place_of(norm))
    else:
        yield Miss(pattern, MissReason.NOT_FUSED, "", _RUN_FUSE, place_of(norm))


def _swiglu(multiply: Any) -> Iterator[Miss]:
    """(x·up)·silu(x·gate)."""
    for gate, up in (tuple(multiply.operands), tuple(multiply.operands)[::-1]):
        silu, product = _producer(gate, "activation"), _producer(up, "matmul")
        if silu is None or product is None or label_of(silu) != "silu":
            continue
        gated = _producer(silu.operands[0], "matmul")
        if gated is None:
            continue
        place = place_of(multiply)
        if gated.operands[0] != product.operands[0]:
            hint = "both products have to read the same tensor"
            yield Miss("SwiGLU", MissReason.SWIGLU_NOT_SHARED_INPUT, "", hint, place)
        elif len(_users(product)) > 1 or len(_users(gated)) > 1 or len(_users(silu)) > 1:
            hint = "use the result of the SwiGLU in place of its parts"
            yield Miss("SwiGLU", MissReason.MULTI_CONSUMER, "a product is read elsewhere too", hint, place)
        else:
            yield Miss("SwiGLU", MissReason.NOT_FUSED, "", _RUN_FUSE, place)
        return


# --- looking at ops -------------------------------------------------------------------------------


def _is_op(op: Any, name: str, kind: str | None = None) -> bool:
    return op.name == f"rlx.{name}" and (kind is None or label_of(op) == kind)


def _users(op: Any) -> list[Any]:
    """The ops that read the first result of an op, each once."""
    return list(dict.fromkeys(use.owner.operation for use in op.results[0].uses))


def _only_user(op: Any) -> Any:
    users = _users(op)
    return users[0] if len(users) == 1 else None


def _is_returned(op: Any) -> bool:
    return any(not registry.is_ours(user) for user in _users(op))


def _producer(value: Any, name: str) -> Any:
    op = value.owner.operation if isinstance(value, mlir.ir.OpResult) else None
    return op if op is not None and op.name == f"rlx.{name}" else None


def _bias_of(add: Any, product: Any, width: Any) -> Shape | None:
    """The other operand of an addition when it varies along the last axis only, as a bias does."""
    other_operands = [v for v in add.operands if v != product.results[0]]
    if len(other_operands) != 1:
        return None
    shape = shape_of(other_operands[0])
    is_vector = shape.rank >= 1 and shape.dims[-1] == width and all(d == 1 for d in shape.dims[:-1])
    return shape if is_vector else None


def _is_epilogue(activation: Any) -> bool:
    """Whether a product fuses with an activation after it: see `rlx-fuse-matmul-bias-act`."""
    return not opview.has_trait(activation, "wide_range")
