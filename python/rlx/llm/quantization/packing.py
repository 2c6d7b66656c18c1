"""Conversion of one tensor to another format, by slices of rows in several threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from rlx.ir.dtype import dtype
from rlx.llm.quantization.file_types import PLAIN
from rlx.schemes import Scheme
from rlx.support.errors import Error
from rlx.weights import PackedBlocks, Weight
from rlx.weights.encoding import Plain

# Elements of a slice. The work of a slice is longer than the overhead of a task, and its arrays stay small.
_SLICE = 1 << 18
_PLAIN_DTYPES = {name: dtype(name).numpy for name in PLAIN}


def format_of(weight: Weight) -> str:
    """Return the name of the format of a tensor: that of its packed blocks, or its dtype."""
    return weight.encoding.name if isinstance(weight.encoding, PackedBlocks) else dtype(weight.dtype).name


def converted(
    weight: Weight, target: Scheme, importance: np.ndarray | None = None, executor: Executor | None = None
) -> Weight:
    """Return a tensor in another format. It is converted when it is read.

    Args:
        weight: The tensor.
        target: The format, which divides its rows into blocks.
        importance: The importance of columns, `[columns]`, or of those of each matrix of a stack, `[matrices, columns]`.
        executor: The threads; None converts in this one. The bytes do not depend on it.
    """
    encoding = PackedBlocks(target)
    nbytes = encoding.nbytes(weight.shape) if weight.shape else target.nbytes
    if format_of(weight) == target.name and _is_stored_in_order(weight):
        return replace(weight, encoding=encoding)
    task = _Conversion(weight, target, importance)
    return Weight(weight.name, weight.shape, encoding, nbytes, weight.origin, lambda: task.run(executor))


def unchanged(weight: Weight) -> Weight:
    """Return a tensor in its own format, which is read when it is written. Integers stay as they are."""
    plain = PLAIN.get(format_of(weight))
    return weight if plain is None else converted(weight, plain)


def _is_stored_in_order(weight: Weight) -> bool:
    """Return whether the stored bytes are those of a little-endian file."""
    encoding = weight.encoding
    return isinstance(encoding, PackedBlocks) or (type(encoding) is Plain and encoding.order == "C")


@dataclass(frozen=True)
class _Conversion:
    """The conversion of a tensor `[…, rows, columns]` to a format, with the importance of its columns."""

    weight: Weight
    target: Scheme
    importance: np.ndarray | None

    def run(self, executor: Executor | None) -> np.ndarray:
        """Return the bytes of the tensor in the new format."""
        columns = self.weight.shape[-1] if self.weight.shape else 1
        rows = prod(self.weight.shape[:-1])
        source = self._source(rows, columns)
        result = np.empty((rows, self.target.row_bytes(columns)), np.uint8)

        def convert(part: tuple[int, int, np.ndarray | None]) -> None:
            start, stop, importance = part
            result[start:stop] = self._converted(source[start:stop], importance)

        parts = self._parts(rows, columns)
        if executor is None:
            for part in parts:
                convert(part)
        else:
            futures = [executor.submit(convert, part) for part in parts]
            try:
                for future in futures:
                    future.result()
            finally:  # after an error or an interrupt, the results are not needed
                for future in futures:
                    future.cancel()
        return result.reshape(-1)

    def _source(self, rows: int, columns: int) -> np.ndarray:
        """Return the elements `[rows, columns]`, or the rows of blocks, u8 `[rows, bytes]`."""
        if isinstance(self.weight.encoding, PackedBlocks):
            return self.weight.stored().reshape(rows, -1)
        return self.weight.numpy().reshape(rows, columns)

    def _parts(self, rows: int, columns: int) -> Iterator[tuple[int, int, np.ndarray | None]]:
        """Yield first row, end and importance of each slice. All rows of a slice have the same importance."""
        step = max(_SLICE // max(columns, 1), 1)
        if self.importance is None or self.importance.ndim == 1:
            yield from ((start, min(start + step, rows), self.importance) for start in range(0, rows, step))
            return
        size = rows // len(self.importance)
        for first, importance in zip(range(0, rows, size), self.importance, strict=True):
            end = first + size
            yield from ((start, min(start + step, end), importance) for start in range(first, end, step))

    def _converted(self, source: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
        encoding = self.weight.encoding
        values = encoding.scheme.decode(source) if isinstance(encoding, PackedBlocks) else source
        try:
            if self.target.name in PLAIN:
                return self._plain(values)
            assert self.target.encode is not None
            return self.target.encode(values, importance)
        except Error as problem:
            described = f"tensor '{self.weight.name}' of {self.weight.origin}"
            raise Error(f"cannot convert {described}: {problem.message}", hint=problem.hint) from None

    def _plain(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result = np.ascontiguousarray(values).astype(_PLAIN_DTYPES[self.target.name])
        # ml_dtypes has no isinf. Numbers that are infinite before stay so.
        if not np.isfinite(result.astype(np.float32)).all() and np.isfinite(values.astype(np.float32)).all():
            raise Error(f"it has numbers that are too large for {self.target.name}", hint="convert to bf16 or f32")
        return result.view(np.uint8)
