"""Functions that are measured against other libraries: arrays, and the function in each library."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        name: The function and its sizes.
        arrays: The arrays of the inputs.
        rlx: The function of RLX: of a graph and its inputs.
        jax: The function of JAX: of the package and its arrays.
    """

    name: str
    arrays: Callable[[], Sequence[np.ndarray]]
    rlx: Callable[..., Any]
    jax: Callable[..., Any]


def _f32(*shapes: tuple[int, ...]) -> Callable[[], Sequence[np.ndarray]]:
    rng = np.random.default_rng(0)
    return lambda: [rng.standard_normal(shape, np.float32) for shape in shapes]


def _bf16(*shapes: tuple[int, ...]) -> Callable[[], Sequence[np.ndarray]]:
    import ml_dtypes

    return lambda: [array.astype(ml_dtypes.bfloat16) for array in _f32(*shapes)()]


def _i8(*shapes: tuple[int, ...]) -> Callable[[], Sequence[np.ndarray]]:
    rng = np.random.default_rng(0)
    return lambda: [rng.integers(-128, 128, shape, np.int8) for shape in shapes]


def _c64(*shapes: tuple[int, ...]) -> Callable[[], Sequence[np.ndarray]]:
    return lambda: [array.view(np.complex64)[..., 0] for array in _f32(*[(*shape, 2) for shape in shapes])()]


def _rows_and_indices(rows: int, width: int, count: int) -> Callable[[], Sequence[np.ndarray]]:
    rng = np.random.default_rng(0)
    return lambda: [*_f32((rows, width))(), rng.integers(0, rows, count, np.int32)]


def _scattered(rows: int, width: int, count: int) -> Callable[[], Sequence[np.ndarray]]:
    def arrays() -> Sequence[np.ndarray]:
        table, indices = _rows_and_indices(rows, width, count)()
        return [table, indices.reshape(count, 1), *_f32((count, width))()]

    return arrays


def _jax_conv(groups: int) -> Callable[..., Any]:
    def conv(jax: Any, x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)], feature_group_count=groups)

    return conv


def _jax_layer_norm(jax: Any, x: Any, scale: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def _jax_attention(jax: Any, q: Any, k: Any, v: Any) -> Any:
    scores = jax.numpy.einsum("hqd,hkd->hqk", q, k) * 0.125
    return jax.numpy.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)


def _attention(g: Any, q: Any, k: Any, v: Any) -> Any:
    return g.softmax(q @ g.transpose(k, (0, 2, 1)) * 0.125) @ v


def _product(jax: Any, x: Any, y: Any) -> Any:
    return jax.numpy.matmul(x, y, preferred_element_type=jax.numpy.int32)


ROWS: tuple[Row, ...] = (
    Row("x + y of 4", _f32((4,), (4,)), lambda g, x, y: x + y, lambda jax, x, y: x + y),
    Row("8 inputs of 4, added", _f32(*[(4,)] * 8), lambda g, *xs: sum(xs[1:], xs[0]), lambda jax, *xs: sum(xs)),
    Row("x + y of 1e6", _f32((1000000,), (1000000,)), lambda g, x, y: x + y, lambda jax, x, y: x + y),
    Row("topk 50 of 64×10000", _f32((64, 10000)), lambda g, x: g.topk(x, 50), lambda jax, x: jax.lax.top_k(x, 50)),
    Row("topk 5 of 1e6", _f32((1000000,)), lambda g, x: g.topk(x, 5), lambda jax, x: jax.lax.top_k(x, 5)),
    Row("cumsum 1e6", _f32((1000000,)), lambda g, x: g.cumsum(x, 0), lambda jax, x: jax.numpy.cumsum(x)),
    Row("cumsum 1000×1000, rows", _f32((1000, 1000)), lambda g, x: g.cumsum(x, 1), lambda jax, x: x.cumsum(1)),
    Row("cumsum 1000×1000, columns", _f32((1000, 1000)), lambda g, x: g.cumsum(x, 0), lambda jax, x: x.cumsum(0)),
    Row("cumprod 64×1000", _f32((64, 1000)), lambda g, x: g.cumprod(x, 1), lambda jax, x: x.cumprod(1)),
    Row("cummax 1000×1000", _f32((1000, 1000)), lambda g, x: g.cummax(x, 1), lambda jax, x: jax.lax.cummax(x, 1)),
    Row(
        "depthwise conv 3×3, 1×64×56×56",
        _f32((1, 64, 56, 56), (64, 1, 3, 3)),
        lambda g, x, w: g.conv(x, w, padding=1, groups=64),
        _jax_conv(64),
    ),
    Row(
        "grouped conv 3×3, 1×64×56×56, 8 groups",
        _f32((1, 64, 56, 56), (64, 8, 3, 3)),
        lambda g, x, w: g.conv(x, w, padding=1, groups=8),
        _jax_conv(8),
    ),
    Row(
        "conv 3×3, 1×64×56×56",
        _f32((1, 64, 56, 56), (64, 64, 3, 3)),
        lambda g, x, w: g.conv(x, w, padding=1),
        _jax_conv(1),
    ),
    Row(
        "i8 product 512³ in i32",
        _i8((512, 512), (512, 512)),
        lambda g, x, y: g.q_matmul(x, y, dtype="i32"),
        _product,
    ),
    Row(
        "q_matmul 512³, to i8",
        _i8((512, 512), (512, 512)),
        lambda g, x, y: g.q_matmul(x, y, multiplier=np.float32(1e-4), x_zero_point=3),
        lambda jax, x, y: jax.numpy.clip(
            jax.numpy.rint(
                _product(jax, x.astype(np.int32) - 3, y.astype(np.int32)).astype(np.float32) * np.float32(1e-4)
            ),
            -128,
            127,
        ).astype(np.int8),
    ),
    Row("bf16 matvec 4096²", _bf16((4096, 4096), (4096, 1)), lambda g, x, y: x @ y, lambda jax, x, y: x @ y),
    Row("bf16 product 512³", _bf16((512, 512), (512, 512)), lambda g, x, y: x @ y, lambda jax, x, y: x @ y),
    Row("f32 matvec 4096²", _f32((4096, 4096), (4096, 1)), lambda g, x, y: x @ y, lambda jax, x, y: x @ y),
    Row("f32 product 512³", _f32((512, 512), (512, 512)), lambda g, x, y: x @ y, lambda jax, x, y: x @ y),
    Row("sort 1e6", _f32((1000000,)), lambda g, x: g.sort(x), lambda jax, x: jax.numpy.sort(x)),
    Row("sort 64×10000", _f32((64, 10000)), lambda g, x: g.sort(x), lambda jax, x: jax.numpy.sort(x)),
    Row("argsort 64×10000", _f32((64, 10000)), lambda g, x: g.argsort(x), lambda jax, x: jax.numpy.argsort(x)),
    Row("argmax 64×10000", _f32((64, 10000)), lambda g, x: g.argmax(x, axis=-1), lambda jax, x: x.argmax(-1)),
    Row("xᵀ + x, 2000²", _f32((2000, 2000)), lambda g, x: g.transpose(x) + x, lambda jax, x: x.T + x),
    Row(
        "gather of 1e5 rows of 64",
        _rows_and_indices(10000, 64, 100000),
        lambda g, x, i: g.gather(x, i),
        lambda jax, x, i: x[i],
    ),
    Row(
        "scatter-add of 1e4 rows of 64",
        _scattered(10000, 64, 10000),
        lambda g, x, i, y: g.scatter_nd(x, i, y, "add"),
        lambda jax, x, i, y: x.at[i[:, 0]].add(y),
    ),
    Row("sum over axis 0, 1000²", _f32((1000, 1000)), lambda g, x: g.sum(x, 0), lambda jax, x: x.sum(0)),
    Row("sum over axis 1, 1000²", _f32((1000, 1000)), lambda g, x: g.sum(x, 1), lambda jax, x: x.sum(1)),
    Row("softmax 256×1000", _f32((256, 1000)), lambda g, x: g.softmax(x), lambda jax, x: jax.nn.softmax(x)),
    Row(
        "layer norm 256×1024",
        _f32((256, 1024), (1024,), (1024,)),
        lambda g, x, scale, bias: g.layer_norm(x, scale, bias),
        _jax_layer_norm,
    ),
    Row("gelu 1e6", _f32((1000000,)), lambda g, x: g.gelu(x), lambda jax, x: jax.nn.gelu(x, approximate=False)),
    Row("fft 65536", _c64((65536,)), lambda g, x: g.fft(x), lambda jax, x: jax.numpy.fft.fft(x)),
    Row("fft 64×1024", _c64((64, 1024)), lambda g, x: g.fft(x), lambda jax, x: jax.numpy.fft.fft(x)),
    Row("rfft 1000×512", _f32((1000, 512)), lambda g, x: g.rfft(x), lambda jax, x: jax.numpy.fft.rfft(x)),
    Row("attention 12×128×64", _f32(*[(12, 128, 64)] * 3), _attention, _jax_attention),
)


def _rnn_step(tanh: Callable[[Any], Any], u: Any) -> Callable[[Any, Any], Any]:
    def step(h: Any, x: Any) -> Any:
        h = tanh(x + h @ u)
        return h, h

    return step


def _jax_rows(jax: Any, table: Any) -> Any:
    step = lambda i, t: t.at[i + 1].set(t[i] * 0.5 + 1.0)  # noqa: E731
    return jax.lax.fori_loop(0, 256, step, table)


def _numpy_rows(np_: Any, table: Any) -> Any:
    table = table.copy()
    for i in range(256):
        table[i + 1] = table[i] * np.float32(0.5) + np.float32(1.0)
    return table


# Loops, which only the kernels of the CPU run as one piece.
LOOPS: tuple[Row, ...] = (
    *(
        Row(
            f"RNN of {batch}×256, 128 steps",
            _f32((batch, 256), (128, batch, 256), (256, 256)),
            lambda g, h, xs, u: g.scan(_rnn_step(g.tanh, u * 0.05), h, xs)[1],
            lambda jax, h, xs, u: jax.lax.scan(_rnn_step(jax.numpy.tanh, u * 0.05), h, xs)[1],
        )
        for batch in (1, 8)
    ),
    Row(
        "256 steps that replace a row of 4096×256",
        _f32((4096, 256)),
        lambda g, t: g.while_(lambda i, t: i < 256, lambda i, t: (i + 1, t.at[i + 1].set(t[i] * 0.5 + 1.0)), 0, t)[1],
        _jax_rows,
    ),
)


def _fft(name: str) -> Callable[[Any, Any], Any]:
    """A transform of `scipy.fft`, or of the submodule `fft` of NumPy or PyTorch."""
    return lambda package, x: getattr(package if hasattr(package, "rfft") else package.fft, name)(x)


# The functions of other libraries, by the names of rows: of NumPy or PyTorch and the arrays.
OTHERS: dict[str, dict[str, Callable[..., Any]]] = {
    "x + y of 1e6": {"numpy": lambda np_, x, y: x + y, "torch": lambda torch, x, y: x + y},
    "topk 50 of 64×10000": {"torch": lambda torch, x: [*torch.topk(x, 50)]},
    "cumsum 1e6": {"numpy": lambda np_, x: x.cumsum(), "torch": lambda torch, x: x.cumsum(0)},
    "cumsum 1000×1000, rows": {"numpy": lambda np_, x: x.cumsum(1), "torch": lambda torch, x: x.cumsum(1)},
    "cumsum 1000×1000, columns": {"numpy": lambda np_, x: x.cumsum(0), "torch": lambda torch, x: x.cumsum(0)},
    "depthwise conv 3×3, 1×64×56×56": {
        "torch": lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=1, groups=64)
    },
    "conv 3×3, 1×64×56×56": {"torch": lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=1)},
    "f32 matvec 4096²": {"numpy": lambda np_, x, y: x @ y, "torch": lambda torch, x, y: x @ y},
    "f32 product 512³": {"numpy": lambda np_, x, y: x @ y, "torch": lambda torch, x, y: x @ y},
    "sort 1e6": {"numpy": lambda np_, x: np.sort(x), "torch": lambda torch, x: torch.sort(x)[0]},
    "sort 64×10000": {"numpy": lambda np_, x: np.sort(x), "torch": lambda torch, x: torch.sort(x)[0]},
    "argmax 64×10000": {"numpy": lambda np_, x: x.argmax(-1), "torch": lambda torch, x: x.argmax(-1)},
    "xᵀ + x, 2000²": {"numpy": lambda np_, x: x.T + x, "torch": lambda torch, x: x.T + x},
    "gather of 1e5 rows of 64": {"numpy": lambda np_, x, i: x[i], "torch": lambda torch, x, i: x[i]},
    "sum over axis 0, 1000²": {"numpy": lambda np_, x: x.sum(0), "torch": lambda torch, x: x.sum(0)},
    "sum over axis 1, 1000²": {"numpy": lambda np_, x: x.sum(1), "torch": lambda torch, x: x.sum(1)},
    "softmax 256×1000": {"torch": lambda torch, x: torch.softmax(x, -1)},
    "layer norm 256×1024": {"torch": lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (1024,), w, b)},
    "gelu 1e6": {"torch": lambda torch, x: torch.nn.functional.gelu(x)},
    **{
        name: {package: _fft("rfft" if name.startswith("r") else "fft") for package in ("numpy", "scipy.fft", "torch")}
        for name in ("fft 65536", "fft 64×1024", "rfft 1000×512")
    },
    "attention 12×128×64": {"torch": lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v)},
    "256 steps that replace a row of 4096×256": {"numpy": _numpy_rows},
}


def several(result: Any) -> list[Any]:
    """Return the results of a function as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


def rlx_call(row: Row, arrays: Sequence[np.ndarray], device: str, **options: Any) -> Callable[[], list[np.ndarray]]:
    """Return the compiled function of RLX on a device, with one thread."""
    import rlx

    g = rlx.Graph("row")
    inputs = [g.input(f"x{i}", array.shape, array.dtype) for i, array in enumerate(arrays)]
    g.set_outputs(several(row.rlx(g, *inputs)))
    program = rlx.Session(device, threads=1).compile(g, **options)
    values = {f"x{i}": array for i, array in enumerate(arrays)}
    return lambda: program.run(values)


def jax_call(row: Row, arrays: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
    """Return the compiled function of JAX."""
    import jax

    compiled = jax.jit(lambda *xs: row.jax(jax, *xs))
    return lambda: [np.asarray(y) for y in several(compiled(*arrays))]


def other_call(row: Row, package: str, arrays: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
    """Return the function of another package, from NumPy arrays to NumPy arrays.

    Raises:
        ImportError: It is not installed.
    """
    module = importlib.import_module(package)
    function = OTHERS[row.name][package]
    if package == "torch":
        module.set_num_threads(1)
        tensors = [module.from_numpy(array) for array in arrays]
        return lambda: [np.asarray(y) for y in several(function(module, *tensors))]
    return lambda: [np.asarray(y) for y in several(function(module, *arrays))]


def check_results(name: str, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], tolerance: float) -> None:
    """Compare the results of two libraries.

    Raises:
        ArithmeticError: They differ.
    """
    for one, other in zip(ours, theirs, strict=True):
        wide = np.complex128 if one.dtype.kind == "c" else np.float64
        error = np.max(np.abs(one.astype(wide) - other) / np.maximum(np.abs(other.astype(wide)), 1))
        if one.shape != other.shape or not error < (
            tolerance if one.dtype.itemsize == 4 or wide is np.complex128 else 1e-2
        ):
            raise ArithmeticError(f"{name}: the results differ by {error:.2g}")
