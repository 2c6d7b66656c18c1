"""Low-rank updates of matrices, which adapters add next to the stored weights.

Source: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (2021), §4.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Tensor
from rlx.support.errors import Error
from rlx.weights import Weight
from rlx.weights.encoding import Plain


@dataclass(frozen=True)
class LowRankUpdate:
    """The update `scale · up · down` of a matrix.

    Attributes:
        down: `[rank, in]`; for the table of an embedding `[rows, rank]`.
        up: `[out, rank]`.
        scale: The factor.
        number: The number of the adapter, which makes the names of parameters unique.
        is_table: Whether the matrix is the table of an embedding.
    """

    down: Weight
    up: Weight
    scale: float
    number: int
    is_table: bool = False

    def products(self, g: Any, x: Tensor, name: str, size_out: int) -> Tensor:
        """Return the products of the update, f32 `[…, size_out]`.

        Args:
            g: The graph.
            x: The other factor, f32 `[…, in]`.
            name: The name of the layer.
            size_out: The number of rows of the layer's matrix.

        Raises:
            Error: The shapes do not fit the matrix.
        """
        self._check(name, (size_out, x.shape.dims[-1]), (self.down.shape[1], self.up.shape[0]))
        return self._scaled(g, g.matmul_transposed(x, self._param(g, name, "down", self.down)), name)

    def rows(self, g: Any, ids: Tensor, name: str, dims: tuple[int, int]) -> Tensor:
        """Return the rows of the update of a table, f32 `[…, size]`.

        Args:
            g: The graph.
            ids: The numbers of the rows, an integer dtype.
            name: The name of the table.
            dims: Its sizes.

        Raises:
            Error: The shapes do not fit the table.
        """
        self._check(name, dims, (self.up.shape[0], self.down.shape[0]))
        return self._scaled(g, g.embedding(self._param(g, name, "down", self.down), ids), name)

    def added_to(self, weight: Weight) -> Weight:
        """Return the matrix with the update added, f32. It is computed when it is read, and then must be finite.

        Args:
            weight: The matrix `[out, in]`, or the table of an embedding `[rows, size]`.

        Raises:
            Error: The shapes do not fit the matrix.
        """
        rows, columns = (
            (self.down.shape[0], self.up.shape[0]) if self.is_table else (self.up.shape[0], self.down.shape[1])
        )
        self._check(weight.name, weight.shape, (columns, rows))

        def read() -> np.ndarray:
            down, up = (factor.numpy().astype(np.float32) for factor in (self.down, self.up))
            with np.errstate(all="ignore"):
                update = down @ up.T if self.is_table else up @ down
                values = weight.numpy().astype(np.float32) + np.float32(self.scale) * update
            if not np.isfinite(values).all():  # `Weight` puts its own name in front of the message
                raise Error(f"has values that are not finite, with the update '{self.up.name}' of {self.up.origin}")
            return np.ascontiguousarray(values).reshape(-1).view(np.uint8)

        encoding = Plain(f32.numpy)
        return replace(weight, encoding=encoding, nbytes=encoding.nbytes(weight.shape), read=read)

    def _check(self, name: str, dims: tuple[Any, ...], own: tuple[int, int]) -> None:
        if (own[1], own[0]) != dims:
            shapes = " and ".join(f"'{w.name}' {w.dtype}{list(w.shape)}" for w in (self.down, self.up))
            raise Error(f"{self.up.origin}: {shapes} do not fit '{name}' of the model, f32{list(dims)}")

    def _scaled(self, g: Any, narrow: Tensor, name: str) -> Tensor:
        factor = np.array([self.scale], np.float32)
        scale = g.param(f"{name}.lora{self.number}.scale", (1,), value=factor)
        return g.matmul_transposed(narrow * scale, self._param(g, name, "up", self.up))

    def _param(self, g: Any, name: str, part: str, weight: Weight) -> Tensor:
        stored = g.param(f"{name}.lora{self.number}.{part}", weight.shape, weight.dtype, value=weight)
        return stored if stored.dtype is f32 else g.cast(stored, "f32")
