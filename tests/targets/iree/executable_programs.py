"""Shared programs and arrays for the tests of executables."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np

from rlx.targets.iree.abi import ArgumentType
from rlx.targets.iree.memory import ALIGNMENT, COPY_LIMIT, address, empty_aligned

F32 = np.dtype(np.float32)
BIG = (256, 256)  # of f32: above the size limit for copies
ROW = (1, 256)
assert 4 * BIG[0] * BIG[1] > COPY_LIMIT

MODEL = """
util.global private @w = #flow.parameter.named<"model"::"layer.w"> : tensor<16x8xf32>
util.global private @big = #flow.parameter.named<"model"::"big"> : tensor<256x256xf32>
func.func @linear(%x: tensor<4x16xf32>) -> tensor<4x8xf32> {
  %w = util.global.load @w : tensor<16x8xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = linalg.matmul ins(%x, %w : tensor<4x16xf32>, tensor<16x8xf32>)
      outs(%init : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
func.func @parameter() -> tensor<256x256xf32> {
  %w = util.global.load @big : tensor<256x256xf32>
  return %w : tensor<256x256xf32>
}
func.func @parameter_with_row(%row: tensor<1x256xf32>) -> tensor<256x256xf32> {
  %w = util.global.load @big : tensor<256x256xf32>
  %y = tensor.insert_slice %row into %w[3, 0] [1, 256] [1, 1] : tensor<1x256xf32> into tensor<256x256xf32>
  return %y : tensor<256x256xf32>
}
"""

MEMORY = """
util.global private mutable @state = dense<0.0> : tensor<256x256xf32>
func.func @double(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %y = arith.addf %x, %x : tensor<256x256xf32>
  return %y : tensor<256x256xf32>
}
func.func @double_and_square(%x: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
  %y = arith.addf %x, %x : tensor<256x256xf32>
  %z = arith.mulf %x, %x : tensor<256x256xf32>
  return %y, %z : tensor<256x256xf32>, tensor<256x256xf32>
}
func.func @same_twice(%x: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
  %y = arith.addf %x, %x : tensor<256x256xf32>
  return %y, %y : tensor<256x256xf32>, tensor<256x256xf32>
}
func.func @identity(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  return %x : tensor<256x256xf32>
}
func.func @identity_twice(%x: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<65536xf32>) {
  %y = tensor.collapse_shape %x [[0, 1]] : tensor<256x256xf32> into tensor<65536xf32>
  return %x, %y : tensor<256x256xf32>, tensor<65536xf32>
}
func.func @insert(%x: tensor<256x256xf32>, %row: tensor<1x256xf32>) -> tensor<256x256xf32> {
  %y = tensor.insert_slice %row into %x[3, 0] [1, 256] [1, 1] : tensor<1x256xf32> into tensor<256x256xf32>
  return %y : tensor<256x256xf32>
}
func.func @insert_and_double(
    %x: tensor<256x256xf32>, %row: tensor<1x256xf32>, %z: tensor<256x256xf32>
  ) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
  %y = tensor.insert_slice %row into %x[3, 0] [1, 256] [1, 1] : tensor<1x256xf32> into tensor<256x256xf32>
  %d = arith.addf %z, %z : tensor<256x256xf32>
  return %y, %d : tensor<256x256xf32>, tensor<256x256xf32>
}
func.func @insert_small(%x: tensor<8x4xf32>, %row: tensor<1x4xf32>) -> tensor<8x4xf32> {
  %y = tensor.insert_slice %row into %x[3, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
  return %y : tensor<8x4xf32>
}
func.func @identity_small(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  return %x : tensor<8x4xf32>
}
func.func @set_state(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  util.global.store %x, @state : tensor<256x256xf32>
  return %x : tensor<256x256xf32>
}
func.func @get_state() -> tensor<256x256xf32> {
  %x = util.global.load @state : tensor<256x256xf32>
  return %x : tensor<256x256xf32>
}
func.func @step_state(%row: tensor<1x256xf32>) -> tensor<256x256xf32> {
  %x = util.global.load @state : tensor<256x256xf32>
  %y = tensor.insert_slice %row into %x[3, 0] [1, 256] [1, 1] : tensor<1x256xf32> into tensor<256x256xf32>
  util.global.store %y, @state : tensor<256x256xf32>
  return %y : tensor<256x256xf32>
}
func.func @scale(%x: tensor<?x256xf32>, %factor: tensor<f32>) -> tensor<?x256xf32> {
  %c0 = arith.constant 0 : index
  %size = tensor.dim %x, %c0 : tensor<?x256xf32>
  %empty = tensor.empty(%size) : tensor<?x256xf32>
  %f = tensor.extract %factor[] : tensor<f32>
  %y = linalg.map ins(%x : tensor<?x256xf32>) outs(%empty : tensor<?x256xf32>) (%a: f32, %o: f32) {
    %b = arith.mulf %a, %f : f32
    linalg.yield %b : f32
  }
  return %y : tensor<?x256xf32>
}
func.func @nothing(%x: tensor<0x4xf32>) -> tensor<0x4xf32> {
  %y = arith.addf %x, %x : tensor<0x4xf32>
  return %y : tensor<0x4xf32>
}
func.func @no_result(%x: tensor<4xf32>) {
  return
}
func.func @scalar(%x: f32) -> f32 {
  return %x : f32
}
"""

DTYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "i1": np.bool_,
    "complex<f32>": np.complex64,
}


def dtype_functions() -> str:
    """For each dtype: functions that negate (or double) a vector, a matrix above the limit, and a scalar."""
    text = ""
    for mlir in DTYPES:
        name = mlir.strip("complex<>")
        bodies = {
            "f": f"arith.negf %a : {mlir}",
            "i": f"arith.addi %a, %a : {mlir}",
            "c": f"complex.neg %a : {mlir}",
        }
        body = "arith.xori %a, %t : i1" if mlir == "i1" else bodies["f" if mlir == "bf16" else mlir[0]]
        for size, dims in (("some", "5x"), ("many", "300x500x"), ("one", ""), ("any", "?x3x")):
            tensor = f"tensor<{dims}{mlir}>"
            text += f"func.func @{size}_{'c' if mlir[0] == 'c' else ''}{name}(%x: {tensor}) -> {tensor} {{\n"
            text += "  %t = arith.constant true\n"
            if size == "any":
                text += f"  %c0 = arith.constant 0 : index\n  %n = tensor.dim %x, %c0 : {tensor}\n"
            text += f"  %e = tensor.empty({'%n' if size == 'any' else ''}) : {tensor}\n"
            text += f"  %y = linalg.map ins(%x : {tensor}) outs(%e : {tensor}) (%a: {mlir}, %o: {mlir}) {{\n"
            text += f"    %b = {body}\n    linalg.yield %b : {mlir}\n  }}\n  return %y : {tensor}\n}}\n"
    return text


def expected(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.bool_:
        return ~array
    return array + array if array.dtype.kind in "iu" else -array


def random(*shape: int) -> np.ndarray:
    """A random aligned array, which can be lent to a program."""
    array = empty_aligned(shape, np.float32)
    array[...] = np.random.default_rng(7).standard_normal(shape)
    return array


def readonly(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def off_alignment(array: np.ndarray) -> np.ndarray:
    """A copy at an address where compiled code would crash."""
    bytes_ = empty_aligned((array.nbytes + 4,), np.uint8)[4:]
    copy = bytes_.view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert address(copy) % ALIGNMENT == 4
    return copy


def borrowed(shape: tuple[int | None, ...]) -> ArgumentType:
    return ArgumentType(F32, shape, "borrow")


def donated(shape: tuple[int | None, ...]) -> ArgumentType:
    return ArgumentType(F32, shape, "donate")


def litter() -> None:
    """Allocate and overwrite freed memory of the sizes in use here, to detect dangling arrays."""
    gc.collect()
    for _ in range(6):
        np.full(BIG, np.nan, np.float32)
        empty_aligned(BIG, np.float32)[...] = np.nan


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    return address(a) < address(b) + b.nbytes and address(b) < address(a) + a.nbytes
