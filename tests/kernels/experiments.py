"""Experiments with the language of kernels: kernels of ops made for them, and the arrays that they are run with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import rlx
from rlx.ir.dims.dim import dim
from rlx.kernels.case import KernelCase
from rlx.kernels.registry import CpuKernel

Arrays = Sequence[np.ndarray]
Infer = Callable[[Sequence[rlx.Shape]], Sequence[rlx.Shape]]


@dataclass(frozen=True)
class Experiment:
    """A kernel of an op of its own, with arrays.

    Attributes:
        kernel: The kernel.
        op: The op.
        shapes: The sizes of the operands; texts are symbols.
        runs: The arrays of the operands in each run.
        expected: The results, computed with NumPy; None if they are those of the interpreter alone.
        tolerance: The relative difference of floats; the same bits if it is 0.
        attributes: The attributes of the op.
    """

    kernel: CpuKernel
    op: type[rlx.CustomOp]
    shapes: Sequence[Sequence[int | str]]
    runs: Sequence[Arrays]
    expected: Callable[..., Sequence[np.ndarray]] | None
    tolerance: float
    attributes: Mapping[str, Any]

    def graph(self) -> rlx.Graph:
        """The op alone."""
        g = rlx.Graph(self.kernel.name)
        first = self.runs[0]
        xs = [
            g.input(f"x{i}", tuple(shape), a.dtype) for i, (shape, a) in enumerate(zip(self.shapes, first, strict=True))
        ]
        results: Any = g.custom(self.op, xs, **self.attributes)
        g.set_outputs(list(results) if isinstance(results, (tuple, list)) else [results])
        return g


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(
    *runs: Arrays,
    results: Infer,
    shapes: Sequence[Sequence[int | str]] | None = None,
    name: str | None = None,
    expected: Callable[..., Sequence[np.ndarray]] | None = None,
    tolerance: float = 0.0,
    workspace: Callable[[KernelCase], Sequence[rlx.Shape]] = lambda case: (),
) -> Callable[[Callable[..., None]], CpuKernel]:
    """Declare a function `function(k, operands, *results, *workspace)` the kernel of a new op, and an experiment."""

    def register(function: Callable[..., None]) -> CpuKernel:
        label = f"language_{name or function.__name__}"
        count = len(results([rlx.Shape(a.shape, rlx.dtype(a.dtype)) for a in runs[0]]))

        class New(rlx.CustomOp, name=f"language.{label}"):
            num_results = count

            def infer(self, *xs: Any) -> Any:
                shapes = list(results(next(iter(xs))))
                return tuple(shapes) if len(shapes) > 1 else shapes[0]

            def evaluate(self, *xs: np.ndarray) -> Any:
                raise NotImplementedError

        made = rlx.kernel(New, name=label, workspace=workspace)(function)
        sizes = shapes or [a.shape for a in runs[0]]
        EXPERIMENTS[label.removeprefix("language_")] = Experiment(made, New, sizes, runs, expected, tolerance, {})
        return made

    return register


def like_first(xs: Sequence[rlx.Shape]) -> list[rlx.Shape]:
    """One result with the shape of the first operand."""
    return [xs[0]]


def shape(*sizes: Any, dtype: str = "f32") -> rlx.Shape:
    """A shape; texts are symbols."""
    return rlx.Shape([dim(size) if isinstance(size, str) else size for size in sizes], rlx.dtype(dtype))
