"""`Emitter`: the machine that emits a kernel as ops of MLIR's arith, vector, memref and scf dialects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType, bool_, dtype, f32, i8, i16, i32, i64, u8
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.elements import INDEX, Element, IndexElement, limits, memory_type, value_type
from rlx.kernels.errors import kernel_error
from rlx.kernels.machine import Machine
from rlx.kernels.operations import Operation
from rlx.numerics.functions import FUNCTIONS
from rlx.numerics.scalars import Scalars, constant

_MOST_BYTES = (1 << 63) - 1  # of memory
# Instructions for `pair_products`, by the element type of the first vector and its bytes.
_PAIR_PRODUCTS = {
    ("i16", 16): "llvm.x86.sse2.pmadd.wd",
    ("i16", 32): "llvm.x86.avx2.pmadd.wd",
    ("i16", 64): "llvm.x86.avx512.pmaddw.d.512",
    ("u8", 16): "llvm.x86.ssse3.pmadd.ub.sw.128",
    ("u8", 32): "llvm.x86.avx2.pmadd.ub.sw",
    ("u8", 64): "llvm.x86.avx512.pmaddubs.w.512",
}
_QUAD_PRODUCTS = {size: f"llvm.x86.avx512.vpdpbusd.{8 * size}" for size in (16, 32, 64)}
_TABLE_ENTRIES = {16: "llvm.x86.ssse3.pshuf.b.128", 32: "llvm.x86.avx2.pshuf.b", 64: "llvm.x86.avx512.pshuf.b.512"}
_ALIGNMENT = 64  # bytes, of scratch memory: a cache line, and the largest vector register


class _WideMath:
    """The dialect `math` with `fma` of f32 in f64, for CPUs without the instruction. The product is exact there."""

    def __init__(self, scalars: Scalars) -> None:
        self._scalars = scalars
        self._wide = scalars.type_of(mlir.ir.F64Type.get(mlir.context()))

    def __getattr__(self, name: str) -> Any:
        return getattr(mlir.dialect("math"), name)

    def fma(self, a: mlir.Value, b: mlir.Value, c: mlir.Value) -> mlir.Value:
        arith = self._scalars.arith
        a, b, c = (arith.extf(self._wide, value) for value in (a, b, c))
        return arith.truncf(self._scalars.element, arith.addf(arith.mulf(a, b), c))


class Emitter(Machine):
    """Emits ops at an insertion point that follows the kernel's loops and branches.

    The insertion point is passed to each builder, and not entered as the bindings' default: a generator of a loop is not
    closed in order when the kernel's code raises an exception.

    Memory is a pair of values: a `memref<i8>`, which is a pointer, and a distance in bytes.

    Args:
        cpu: The CPU that the kernel is for.
        block: The entry block of the function, whose last argument is the number of the workgroup.
        location: The location of all ops.
        repeats_bodies: Whether the body of each loop is run twice, to find values that are carried in Python's variables.
    """

    def __init__(
        self, cpu: CpuModel, block: mlir.Block, location: mlir.Location, *, repeats_bodies: bool = False
    ) -> None:
        super().__init__(cpu)
        self.at: dict[str, Any] = {"ip": mlir.ir.InsertionPoint(block), "loc": location}
        self.dialects = {name: mlir.dialect(name) for name in ("arith", "math", "vector", "memref", "scf", "llvm")}
        self.arith, self.vector, self.memref = (self.dialects[name] for name in ("arith", "vector", "memref"))
        self.repeats_bodies = repeats_bodies
        self.workgroup = block.arguments[-1] if len(block.arguments) else None
        self._memories: dict[Any, Any] = {}
        self._conditions: list[Any] = []
        self._scratch_bytes = 0
        self._tables: dict[Any, str] = {}
        self._constants: dict[tuple[str, Element, int | None], Any] = {}
        # Ops of the whole function are emitted before this unused one, so that they dominate the whole kernel.
        with self.at["ip"], self.at["loc"]:
            self._end_of_entry = constant(0, value_type(INDEX, None)).owner

    # --- values -----------------------------------------------------------------------------------

    def constant(self, number: Any, element: Element, lanes: int | None) -> Any:
        key = (str(number), element, lanes)  # text, because 0 and -0 are equal, and NaN is not
        if key not in self._constants:
            at = self.at | {"ip": self._entry_point()}
            with at["ip"], at["loc"]:
                value = constant(number, value_type(element, None))
            if lanes is not None:
                value = self.vector.broadcast(value_type(element, lanes), value, **at)
            self._constants[key] = value
        return self._constants[key]

    def constants(self, numbers: Sequence[Any], element: Element) -> Any:
        return self.joined([self.constant(number, element, None) for number in numbers], element)

    def joined(self, parts: Sequence[Any], element: Element) -> Any:
        return self.vector.from_elements(value_type(element, len(parts)), list(parts), **self.at)

    def splat(self, data: Any, element: Element, lanes: int) -> Any:
        return self.vector.broadcast(value_type(element, lanes), data, **self.at)

    def apply(self, operation: Operation, operands: Sequence[Any], element: Element) -> Any:
        dialect, _, name = operation.mlir_op(element).partition(".")
        return getattr(self.dialects[dialect], name)(*operands, **self.at)

    def compare(self, kind: str, a: Any, b: Any, element: Element) -> Any:
        if element.is_float:
            predicate = getattr(self.arith.CmpFPredicate, ("U" if kind == "ne" else "O") + kind.upper())
            return self.arith.cmpf(predicate, a, b, **self.at)
        prefix = "" if kind in ("eq", "ne") else "s" if element.is_signed else "u"
        return self.arith.cmpi(getattr(self.arith.CmpIPredicate, prefix + kind), a, b, **self.at)

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return self.arith.select(condition, a, b, **self.at)

    def fma(self, a: Any, b: Any, c: Any, element: Element) -> Any:
        if self.cpu.has_fma:
            return self.dialects["math"].fma(a, b, c, **self.at)
        return self.arith.addf(self.arith.mulf(a, b, **self.at), c, **self.at)

    def convert(self, data: Any, source: Element, target: Element, lanes: int | None) -> Any:
        type_ = value_type(target, lanes)
        name = _conversion(source, target)
        return data if name is None else getattr(self.arith, name)(type_, data, **self.at)

    def elementary(self, name: str, data: Any, element: DType, lanes: int | None) -> Any:
        scalars = Scalars(element, lanes)
        if not self.cpu.has_fma:
            scalars.math = _WideMath(scalars)
        with self.at["ip"], self.at["loc"]:
            return FUNCTIONS[name](scalars, data)

    def bits(self, data: Any, target: Element, lanes: int | None) -> Any:
        type_ = value_type(target, lanes)
        if data.type == type_:
            return data
        is_regrouped = lanes is not None and data.type.shape != [lanes]
        return (self.vector if is_regrouped else self.arith).bitcast(type_, data, **self.at)

    def lane(self, data: Any, index: Any) -> Any:
        dynamic = not isinstance(index, int)
        unknown = mlir.ir.ShapedType.get_dynamic_size()
        return self.vector.extract(data, [index] if dynamic else [], [unknown if dynamic else index], **self.at)

    def lane_bits(self, data: Any) -> Any:
        integer = mlir.ir.IntegerType.get_signless
        lanes = data.type.shape[0]
        bits = self.vector.bitcast(mlir.ir.VectorType.get([1], integer(lanes)), data, **self.at)
        number = self.lane(bits, 0)
        return number if lanes == 64 else self.arith.extui(integer(64), number, **self.at)

    def shuffle(self, a: Any, b: Any, indices: Sequence[int]) -> Any:
        return self.vector.shuffle(a, b, indices, **self.at)

    def mask(self, count: Any, lanes: int) -> Any:
        return self.vector.create_mask(value_type(bool_, lanes), [count], **self.at)

    def pair_products(self, a: Any, b: Any, element: Element, lanes: int) -> Any:
        target = i32 if element is i16 else i16
        size = lanes * element.itemsize
        if size <= self.cpu.pair_bytes and (element.name, size) in _PAIR_PRODUCTS:
            return self.intrinsic(_PAIR_PRODUCTS[element.name, size], (a, b), target, lanes // 2)
        wide, type_ = value_type(i32, lanes // 2), value_type(target, lanes // 2)
        total = None
        for first in range(2):
            indices = range(first, lanes, 2)
            x, y = self.shuffle(a, a, indices), self.shuffle(b, b, indices)
            widened = self.arith.extsi if element is i16 else self.arith.extui
            product = self.arith.muli(widened(wide, x, **self.at), self.arith.extsi(wide, y, **self.at), **self.at)
            total = product if total is None else self.arith.addi(total, product, **self.at)
        if target is i32:
            return total
        least, greatest = (self.constant(n, i32, lanes // 2) for n in limits(i16))
        clamped = self.arith.minsi(self.arith.maxsi(total, least, **self.at), greatest, **self.at)
        return self.arith.trunci(type_, clamped, **self.at)

    def quad_products(self, a: Any, b: Any, total: Any, lanes: int) -> Any:
        return self.intrinsic(_QUAD_PRODUCTS[lanes], (total, a, b), i32, lanes // 4)

    def table_entries(self, table: Any, indices: Any, lanes: int) -> Any:
        return self.intrinsic(_TABLE_ENTRIES[lanes], (table, indices), u8, lanes)

    def widen_half(self, data: Any, lanes: int | None) -> Any:
        if not self.cpu.has_f16:
            return self._widen_half_bits(data, lanes)
        half = mlir.ir.F16Type.get(mlir.context())
        type_ = half if lanes is None else mlir.ir.VectorType.get([lanes], half)
        bits = self.arith.bitcast(type_, data, **self.at)
        return self.arith.extf(value_type(f32, lanes), bits, **self.at)

    def _widen_half_bits(self, data: Any, lanes: int | None) -> Any:
        """The same by integer arithmetic, without subnormal numbers of f32, which the CPU may flush to zero."""
        arith, at = self.arith, self.at

        def number(bits: int) -> Any:
            return self.constant(bits, i32, lanes)

        word = arith.extui(value_type(i32, lanes), data, **at)
        size = arith.shli(arith.andi(word, number(0x7FFF), **at), number(13), **at)
        exponent = arith.andi(size, number(0x0F800000), **at)
        normal = arith.addi(size, number(112 << 23), **at)
        special = arith.addi(normal, number(112 << 23), **at)
        float_type, int_type = value_type(f32, lanes), value_type(i32, lanes)
        # A subnormal becomes the fraction of 2**-14, which is then subtracted.
        raised = arith.bitcast(float_type, arith.addi(normal, number(1 << 23), **at), **at)
        low = arith.subf(raised, arith.bitcast(float_type, number(113 << 23), **at), **at)
        low = arith.bitcast(int_type, low, **at)
        equal = arith.CmpIPredicate.eq
        is_low = arith.cmpi(equal, exponent, number(0), **at)
        is_special = arith.cmpi(equal, exponent, number(0x0F800000), **at)
        bits = arith.select(is_low, low, arith.select(is_special, special, normal, **at), **at)
        sign = arith.shli(arith.andi(word, number(0x8000), **at), number(16), **at)
        return arith.bitcast(float_type, arith.ori(bits, sign, **at), **at)

    def prefetch(self, array: Any, indices: Sequence[Any]) -> None:
        ir = mlir.ir
        attributes = {
            "isWrite": ir.BoolAttr.get(False, context=mlir.context()),
            "localityHint": ir.IntegerAttr.get(ir.IntegerType.get_signless(32, context=mlir.context()), 3),
            "isDataCache": ir.BoolAttr.get(True, context=mlir.context()),
        }
        operands = [array, *indices]
        ir.Operation.create("memref.prefetch", results=[], operands=operands, attributes=attributes, **self.at)

    def intrinsic(self, name: str, operands: Sequence[Any], element: Element, lanes: int | None) -> Any:
        ir = mlir.ir
        attributes = {
            "intrin": ir.StringAttr.get(name),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
        }
        results, at = [value_type(element, lanes)], self.at
        op = ir.Operation.create(
            "llvm.call_intrinsic", results=results, operands=list(operands), attributes=attributes, **at
        )
        return op.result

    # --- memory -----------------------------------------------------------------------------------

    def view(self, memory: Any, shape: Sequence[Any], element: Element) -> Any:
        sizes = [s for s in shape if not isinstance(s, int)]
        pointer, offset = memory
        at = self.at if sizes else self.at | {"ip": self._entry_point()}
        return self.memref.view(_memref(shape, element), self._bytes(pointer), offset, sizes, **at)

    def _bytes(self, pointer: Any) -> Any:
        """The memory at a pointer, of any size."""
        if pointer not in self._memories:
            ir, unknown = mlir.ir, mlir.ir.ShapedType.get_dynamic_size()
            parts = {"static_offsets": [0], "static_sizes": [unknown], "static_strides": [1]}
            attributes = {name: ir.DenseI64ArrayAttr.get(numbers) for name, numbers in parts.items()}
            attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 0, 1, 0])
            op = ir.Operation.create(
                "memref.reinterpret_cast",
                results=[_memref([None], i8)],
                operands=[pointer, self.constant(_MOST_BYTES, INDEX, None)],
                attributes=attributes,
                ip=self._entry_point(),
                loc=self.at["loc"],
            )
            self._memories[pointer] = op.result
        return self._memories[pointer]

    def scratch(self, shape: Sequence[int], element: Element) -> Any:
        alignment = mlir.ir.IntegerAttr.get(mlir.ir.IntegerType.get_signless(64), _ALIGNMENT)
        at = self.at | {"ip": self._entry_point()}
        self._scratch_bytes += math.prod(shape) * element.itemsize
        self.check_scratch(self._scratch_bytes)
        return self.memref.alloca(_memref(shape, element), [], [], alignment=alignment, **at)

    def table(self, array: np.ndarray) -> Any:
        key = (array.shape, array.dtype.str, array.tobytes())
        if key not in self._tables:
            self._tables[key] = self._global(array)
        type_ = _memref(array.shape, dtype(array.dtype))
        return self.memref.get_global(type_, self._tables[key], **(self.at | {"ip": self._entry_point()}))

    def _global(self, array: np.ndarray) -> str:
        """Emit constant memory next to the function, and return its name."""
        function = self._end_of_entry.operation.parent
        name = f"{function.attributes['sym_name'].value}_table{len(self._tables)}"
        ir, element = mlir.ir, dtype(array.dtype)
        with self.at["loc"]:
            values = ir.DenseElementsAttr.get(array, type=memory_type(element))
            alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _ALIGNMENT)
            attributes = {
                "sym_name": ir.StringAttr.get(name),
                "sym_visibility": ir.StringAttr.get("private"),
                "type": ir.TypeAttr.get(_memref(array.shape, element)),
                "initial_value": values,
                "constant": ir.UnitAttr.get(),
                "alignment": alignment,
            }
        ir.Operation.create("memref.global", attributes=attributes, ip=ir.InsertionPoint(function), loc=self.at["loc"])
        return name

    def load(self, array: Any, indices: Sequence[Any], element: Element, lanes: int | None, mask: Any) -> Any:
        indices = list(indices)
        if lanes is None:
            data = self.memref.load(array, indices, **self.at)
        else:
            type_ = mlir.ir.VectorType.get([lanes], memory_type(element))
            if mask is None:
                data = self.vector.load(type_, array, indices, **self.at)
            else:
                zero = self._memory_zero(element, lanes)
                data = self.vector.maskedload(type_, array, indices, mask, zero, **self.at)
        if element is not bool_:
            return self._as_value(data, element, lanes)
        zero = self._memory_zero(element, lanes)
        return self.arith.cmpi(self.arith.CmpIPredicate.ne, data, zero, **self.at)

    def store(self, array: Any, indices: Sequence[Any], data: Any, lanes: int | None, mask: Any) -> None:
        indices, byte = list(indices), mlir.ir.IntegerType.get_signless(8)
        if data.type == value_type(bool_, lanes):
            data = self.arith.extui(byte if lanes is None else mlir.ir.VectorType.get([lanes], byte), data, **self.at)
        data = self._as_stored(data, lanes)
        if lanes is None:
            self.memref.store(data, array, indices, **self.at)
        elif mask is None:
            self.vector.store(data, array, indices, **self.at)
        else:
            self.vector.maskedstore(array, indices, mask, data, **self.at)

    def variable(self, element: Element, lanes: int | None) -> Any:
        """Memory of the function, which LLVM keeps in a register."""
        stored = i64 if element is INDEX else element
        type_ = mlir.ir.MemRefType.get([], value_type(stored, lanes))
        return self.memref.alloca(type_, [], [], **(self.at | {"ip": self._entry_point()}))

    def read(self, variable: Any, element: Element, lanes: int | None) -> Any:
        return self._as_value(self.memref.load(variable, [], **self.at), element, lanes)

    def assign(self, variable: Any, data: Any, lanes: int | None) -> None:
        self.memref.store(self._as_stored(data, lanes), variable, [], **self.at)

    def _as_value(self, data: Any, element: Element, lanes: int | None) -> Any:
        """Return data of memory as a value: indices are stored as i64."""
        return self.arith.index_cast(value_type(INDEX, lanes), data, **self.at) if element is INDEX else data

    def _as_stored(self, data: Any, lanes: int | None) -> Any:
        if data.type != value_type(INDEX, lanes):
            return data
        return self.arith.index_cast(value_type(i64, lanes), data, **self.at)

    def _entry_point(self) -> mlir.InsertionPoint:
        return mlir.ir.InsertionPoint(self._end_of_entry)

    def _memory_zero(self, element: Element, lanes: int | None) -> Any:
        with self.at["ip"], self.at["loc"]:
            scalar = constant(0, memory_type(element))
        if lanes is None:
            return scalar
        return self.vector.broadcast(mlir.ir.VectorType.get([lanes], memory_type(element)), scalar, **self.at)

    # --- control flow -----------------------------------------------------------------------------

    def range(self, start: Any, stop: Any, step: Any) -> Iterator[Any]:
        op = self.dialects["scf"].ForOp(start, stop, step, [], **self.at)
        for _ in self._block(op.body, "a loop"):
            yield op.induction_variable
        if self.repeats_bodies:
            # In its second run, a body meets the values that its first one left in Python's variables, as in a second step
            # of the loop: they are errors then. The ops of the second run are erased.
            self.repeats_bodies = False
            again = self.dialects["scf"].ForOp(start, stop, step, [], **self.at)
            for _ in self._block(again.body, "a loop"):
                yield again.induction_variable
            again.operation.erase()
            self.repeats_bodies = True

    def when(self, condition: Any) -> Iterator[None]:
        op = self.dialects["scf"].IfOp(condition, [], has_else=False, **self.at)
        yield from self._block(op.then_block, "a branch")

    def repeat(self) -> Iterator[None]:
        """An `scf.while` whose condition is computed by the whole body."""
        op = self.dialects["scf"].WhileOp([], [], **self.at)
        before, after = (region.blocks.append() for region in op.operation.regions)
        depth = len(self._conditions)
        for _ in self._block(before, "a loop", terminated=False):
            yield None
            if len(self._conditions) != depth + 1:
                raise kernel_error("the body of `k.repeat()` must call `k.stop_unless(condition)` once")
            self.dialects["scf"].condition(self._conditions.pop(), [], **self.at)
        self.dialects["scf"].yield_([], ip=mlir.ir.InsertionPoint(after), loc=self.at["loc"])

    def stop_unless(self, condition: Any) -> None:
        self._conditions.append(condition)

    def _block(self, block: Any, name: str, *, terminated: bool = True) -> Iterator[None]:
        """Emit the ops of a block: the code that runs between the yield and the next step of the iterator."""
        outer = self.at["ip"]
        self.at["ip"] = mlir.ir.InsertionPoint(block)
        yield from self.body(name)
        if terminated:
            self.dialects["scf"].yield_([], **self.at)
        self.at["ip"] = outer

    def workgroups(self, count: Any, chunk: Any) -> Iterator[tuple[Any, Any]]:
        start = self.arith.muli(self.workgroup, chunk, **self.at)
        yield start, self.arith.minsi(self.arith.addi(start, chunk, **self.at), count, **self.at)


def _memref(shape: Sequence[Any], element: Element) -> mlir.Type:
    unknown = mlir.ir.ShapedType.get_dynamic_size()
    sizes = [s if isinstance(s, int) else unknown for s in shape]
    return mlir.ir.MemRefType.get(sizes, memory_type(element))


def _conversion(source: Element, target: Element) -> str | None:
    """Return the op of arith that converts numbers; None if the values are the same. Only numbers become indices."""
    if isinstance(source, IndexElement) or isinstance(target, IndexElement):
        unsigned = source.is_bool or not (source.is_signed and target.is_signed)
        return "index_castui" if unsigned else "index_cast"
    if source.is_float and target.is_float:
        return None if source.bits == target.bits else "extf" if source.bits < target.bits else "truncf"
    if source.is_float:
        return "fptosi" if target.is_signed else "fptoui"
    unsigned = source.is_bool or not source.is_signed
    if target.is_float:
        return "uitofp" if unsigned else "sitofp"
    width = 1 if source.is_bool else source.bits
    if width == target.bits:
        return None
    return ("extui" if unsigned else "extsi") if width < target.bits else "trunci"
