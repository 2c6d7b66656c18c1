"""`shard`: the distribution of a tensor over devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import EVERY, f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, Shapes, sample
from rlx.ir.shape import Shape
from rlx.ir.sharding import check_sharding, sharding_from_text, sharding_of, sharding_text, with_axis
from rlx.ops.lift import tensor_like


class Shard(Card, op="shard"):
    def infer(self, x: Shape, *, sharding: str) -> Shape:
        sharding_from_text(sharding, x.rank)
        return x

    def evaluate(self, x: np.ndarray, *, sharding: str) -> np.ndarray:
        return x

    def decompose(self, b: Builder, x: Tensor, *, sharding: str) -> Tensor:
        return x

    def build(self, b: Builder, x: TensorLike, sharding: Sequence[str | Sequence[str] | None] | str) -> Tensor:
        """For each dimension, `sharding` has the mesh axis that it is sharded over, None, or a tuple of mesh axes."""
        x = tensor_like(b, x, f32)
        given = sharding_from_text(sharding, x.rank) if isinstance(sharding, str) else sharding_of(sharding, x.rank)
        if (mesh := getattr(b, "mesh", None)) is not None:
            check_sharding(given, x.shape, mesh)
        return b.emit("shard", (x,), sharding=sharding_text(given))

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, sharding: str
    ) -> tuple[Tensor]:
        return (b.emit("shard", (cotangents[0],), sharding=sharding),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, sharding: str) -> Tensor:
        spread = with_axis(sharding_from_text(sharding, operands[0].rank - 1), 0)
        return b.emit("shard", operands, sharding=sharding_text(spread or ()))

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 0)

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 4), sharding="data, _, model+expert", dtypes=EVERY)
        yield sample((4,), sharding="_", dtypes=("f32",))
        yield sample((), sharding="", dtypes=("f32",))
        yield sample((0, 3), sharding="_, model", dtypes=("f32",))
        yield sample(("n", 3), sharding="data, _", dtypes=("f32",))
