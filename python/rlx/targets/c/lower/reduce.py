"""Reductions, argmax and argmin, and pooling."""

from __future__ import annotations

from contextlib import ExitStack
from math import prod
from typing import Any

from rlx import mlir
from rlx.ir.dtype import DType, f32, i32, u32
from rlx.ir.shape import Shape, shape_of
from rlx.ops.convolution.geometry import PoolGeometry
from rlx.support.errors import UnsupportedError
from rlx.targets.c.lower.elementwise import within
from rlx.targets.c.lower.kernel import IndexBody, KernelWriter
from rlx.targets.c.lower.rules import loops
from rlx.targets.c.lower.values import (
    Affine,
    Index,
    Scalar,
    computed_in,
    integer_text,
    limits,
    scalar,
    stored_type,
)


class Total:
    """An accumulator of elements: a sum, a product or an extreme.

    Where the sum might overflow, integers are added as unsigned, and the sum is converted back at the end.

    Args:
        body: The statements to add to.
        kind: `sum`, `prod`, `max`, `min` or `mean`.
        dtype: The dtype of the result.
        count: The maximal number of elements.
        bounds: The least and greatest element.
        never_empty: Whether there is at least one element.
    """

    def __init__(
        self, body: IndexBody, kind: str, dtype: DType, count: int, bounds: tuple[int, int], *, never_empty: bool
    ):
        self.body, self.kind, self.dtype = body, kind, dtype
        self.is_extreme = kind in ("max", "min")
        low, high = min(0, count * bounds[0]), max(0, count * bounds[1])
        if self.is_extreme:  # without elements, the result is the initial value
            self.bounds = bounds if never_empty else limits(dtype)
        else:
            self.bounds = (low, high) if kind == "sum" else limits(dtype)
        self.fits = self.is_extreme or dtype is f32 or (kind == "sum" and within((low, high), computed_in(dtype)))
        self.variable = body.fresh({"max": "greatest", "min": "least", "prod": "product"}.get(kind, "sum"))
        body.writer.line(f"{self._kind} {self.variable} = {self._start()};")

    @property
    def _kind(self) -> str:
        if self.dtype is f32:
            return "float" if self.is_extreme else "double"
        plain = stored_type(computed_in(self.dtype))
        return plain if self.fits else f"u{plain}".replace("uuint", "uint")

    def _start(self) -> str:
        if self.dtype is f32:
            return {"max": f"-{self.body.need('math')}INFINITY", "min": f"{self.body.need('math')}INFINITY"}.get(
                self.kind, "1.0" if self.kind == "prod" else "0.0"
            )
        if self.is_extreme:
            low, high = limits(self.dtype)
            return integer_text(low if self.kind == "max" else high, computed_in(self.dtype))
        return "1" if self.kind == "prod" else "0"

    def add(self, body: IndexBody, element: Scalar) -> None:
        """Accumulate an element."""
        w, variable = body.writer, self.variable
        if self.is_extreme:
            element = element if element.simple and "[" not in element.text else body.local(element, "element")
            sign = ">" if self.kind == "max" else "<"
            nan = f" || ({element.text} != {element.text})" if self.dtype is f32 else ""
            test = f"({element.text} {sign} {variable}){nan}" if nan else f"{element.text} {sign} {variable}"
            with w.block(f"if ({test})"):
                w.line(f"{variable} = {element.text};")
            return
        sign = "*" if self.kind == "prod" else "+"
        if sign == "*" and not self.fits and not element.text.isidentifier():
            element = body.local(element, "element")  # GCC 12 warns about a product with a converted element
        text = element.text if self.fits else f"({self._kind}){element.term}"
        if self.dtype is f32:
            text = f"(double){element.term}"
        w.line(f"{variable} {sign}= {text};")

    def result(self, body: IndexBody, divisor: str | None = None) -> Scalar:
        """The accumulated value, in the dtype."""
        if self.dtype is f32:
            divided = self.variable if divisor is None else f"({self.variable} / {divisor})"
            return scalar(self.variable if self.is_extreme else f"(float){divided}", f32, simple=self.is_extreme)
        if self.fits and within(self.bounds, self.dtype):
            return Scalar(self.variable, self.dtype, *self.bounds)
        if self.dtype is u32:
            return scalar(self.variable, self.dtype)
        return scalar(f"({stored_type(self.dtype)}){self.variable}", self.dtype, simple=False)


@loops("reduce")
def reduce(
    kernel: KernelWriter, result: Shape, x: mlir.Value, *, kind: str, axes: tuple[int, ...], keep_dims: bool
) -> None:
    shape = shape_of(x)
    count = prod(shape.static[a] for a in axes)
    order = [a for a in range(shape.rank) if a not in axes]

    def run(body: IndexBody, index: Index) -> None:
        kept = [at for i, at in enumerate(index) if not (keep_dims and i in axes)]
        total = Total(body, kind, shape.dtype, count, kernel.bounds(x), never_empty=count > 0)

        def inner(inside: IndexBody, of_axes: Index) -> None:
            at = [Affine()] * shape.rank
            for axis, place in zip(order, kept, strict=True):
                at[axis] = place
            for axis, place in zip(axes, of_axes, strict=True):
                at[axis] = place
            total.add(inside, inside.element(x, tuple(at)))
            body.places += inside.places
            body.read |= inside.read

        names = [f"r{number}" if len(axes) > 1 else "r" for number in range(len(axes))]
        kernel.nest([shape.static[a] for a in axes], inner, names, body)
        made = total.result(body, f"{count}.0" if kind == "mean" else None)
        kernel.finish(body, index, made if made.simple else body.local(made, kind))

    kernel.nest(result.static, run)


def _position(kernel: KernelWriter, result: Shape, x: mlir.Value, axis: int, keep_dims: bool, sign: str) -> None:
    shape = shape_of(x)

    def run(body: IndexBody, index: Index) -> None:
        others = [at for i, at in enumerate(index) if not (keep_dims and i == axis)]
        w, variable = body.writer, "r"
        first = (*others[:axis], Affine(), *others[axis:])
        kind = stored_type(computed_in(shape.dtype))
        found, position = body.fresh("best"), body.fresh("position")
        w.line(f"{kind} {found} = {body.element(x, first).text};")
        w.line(f"int32_t {position} = 0;")
        with w.loop(variable, shape.static[axis], 1):
            inside = IndexBody(kernel, w, around=body)
            element = inside.element(x, (*others[:axis], Affine.of(variable), *others[axis:]))
            element = element if element.text.isidentifier() else inside.local(element, "element")
            test = f"{element.text} {sign} {found}"
            if shape.dtype is f32:  # the first NaN wins
                test = f"({test}) || (({element.text} != {element.text}) && ({found} == {found}))"
            with w.block(f"if ({test})"):
                w.line(f"{found} = {element.text};")
                w.line(f"{position} = {variable};")
            body.places += inside.places
            body.read |= inside.read
        kernel.finish(body, index, Scalar(position, i32, 0, shape.static[axis] - 1))

    kernel.nest(result.static, run)


@loops("argmax")
def argmax(kernel: KernelWriter, result: Shape, x: mlir.Value, *, axis: int, keep_dims: bool) -> None:
    _position(kernel, result, x, axis, keep_dims, ">")


@loops("argmin")
def argmin(kernel: KernelWriter, result: Shape, x: mlir.Value, *, axis: int, keep_dims: bool) -> None:
    if shape_of(x).dtype is f32:
        raise UnsupportedError("C has no argmin of f32", hint="take argmax of -x")
    _position(kernel, result, x, axis, keep_dims, "<")


def taps(body: IndexBody, index: Index, dims: Any, geometry: PoolGeometry, dilation: Any, stack: ExitStack) -> Index:
    """Loops over a window, in which only places inside of the operand are reached; the place that a tap reads.

    Args:
        body: Where to write.
        index: Of the result, its spatial axes.
        dims: Sizes of the operand's spatial axes.
        geometry: The windows.
        dilation: From tap to tap.
        stack: The exit stack that ends the loops.
    """
    w = body.writer
    at: list[Affine] = []
    single = len(dims) == 1
    axes = zip(index, dims, geometry.kernel, geometry.stride, dilation, geometry.edges, strict=True)
    for axis, (out, d, size, step, apart, (before, after)) in enumerate(axes):
        name = ("kx" if single else ("ky", "kx", "kz")[axis]) if len(dims) < 3 else ("kz", "ky", "kx")[axis]
        tap = Affine()
        if size > 1:
            stack.enter_context(w.loop(name, size))
            tap = Affine.of(name)
        place = out * step + tap * apart + -before
        if before or after:
            variable = {"kx": "column", "ky": "row", "kz": "plane"}[name]
            w.line(f"const int32_t {variable} = {body.text_of(place)};")
            stack.enter_context(w.block(f"if (({variable} >= 0) && ({variable} < {d}))"))
            place = Affine.of(variable)
        at.append(place)
    return tuple(at)


@loops("pool")
def pool(
    body_of: KernelWriter,
    result: Shape,
    x: mlir.Value,
    *,
    kind: str,
    geometry: PoolGeometry,
    count_include_pad: bool,
) -> None:
    shape = shape_of(x)
    size, is_padded = prod(geometry.kernel), any(geometry.padding)
    divided = kind == "mean" and not count_include_pad and is_padded

    def run(body: IndexBody, index: Index) -> None:
        kept, spatial = index[:2], index[2:]
        total = Total(body, kind, shape.dtype, size, body_of.bounds(x), never_empty=not is_padded)
        if divided:
            body.writer.line("int32_t count = 0;")
        with ExitStack() as stack:
            at = taps(body, spatial, shape.static[2:], geometry, (1,) * len(spatial), stack)
            inside = IndexBody(body_of, body.writer, around=body)
            total.add(inside, inside.element(x, (*kept, *at)))
            if divided:
                body.writer.line("count++;")
            body.places += inside.places
            body.read |= inside.read
        divisor = ("(double)count" if divided else f"{size}.0") if kind == "mean" else None
        made = total.result(body, divisor)
        body_of.finish(body, index, made if made.simple else body.local(made, kind))

    names = ("n", "c", *(("x",) if result.rank == 3 else ("y", "x") if result.rank == 4 else ("z", "y", "x")))
    body_of.nest(result.static, run, [f"out_{n}" if n in "xyz" else n for n in names])
