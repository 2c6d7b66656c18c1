"""Tensors of every PyTorch dtype in modules. Those that RLX has are imported, all others are refused by name."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rlx
from rlx.ir.arrays import as_array, torch_hint
from rlx.ir.dtype import DTYPES
from tests.bit_patterns import bit_patterns

NAMES = {
    name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype) and str(value).endswith(name)
}
TAKEN = {kind: NAMES[kind.numpy_name] for kind in DTYPES if kind.numpy_name in NAMES and not kind.packed}
REFUSED = sorted(name for name, value in NAMES.items() if value not in TAKEN.values())
QUANTIZED = [name for name in REFUSED if name.startswith("q")]


def tensor(array: np.ndarray) -> Any:
    """Return a PyTorch tensor with the same bits."""
    kind = rlx.dtype(array.dtype)
    return torch.from_numpy(array.view(np.uint8).copy()).view(TAKEN[kind]).reshape(array.shape)


class Stored(torch.nn.Module):
    """A module with a buffer of each dtype."""

    def __init__(self) -> None:
        super().__init__()
        for kind in TAKEN:
            self.register_buffer(kind.name, tensor(bit_patterns(kind)))

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        return tuple(torch.stack([getattr(self, kind.name), x]) for kind, x in zip(TAKEN, inputs, strict=True))


def test_the_dtypes_of_the_table_are_taken_as_they_are() -> None:
    assert len(TAKEN) >= 20 and {rlx.u16, rlx.u32, rlx.u64, rlx.c128, rlx.f8e4m3fn, rlx.f8e8m0fnu} <= TAKEN.keys()
    inputs = {kind: tensor(bit_patterns(kind)) for kind in TAKEN}
    g = rlx.from_torch(Stored(), tuple(inputs.values()))
    assert {a.name.rpartition(".")[2]: a.shape.dtype for a in g.params} == {kind.name: kind for kind in TAKEN}
    for kind, weight in zip(TAKEN, g.weights.values(), strict=True):
        assert as_array(weight, "w").tobytes() == bit_patterns(kind).tobytes()
    arguments = {a.name: x for a, x in zip(g.inputs, inputs.values(), strict=True)}
    for kind, found in zip(TAKEN, rlx.evaluate(g, arguments), strict=True):
        expected = np.stack([bit_patterns(kind)] * 2)
        assert found.dtype == kind.numpy and found.tobytes() == expected.tobytes(), kind


@pytest.mark.parametrize("layout", ["scalar", "empty", "strided", "offset"])
def test_layouts(layout: str) -> None:
    for kind in TAKEN:
        array = np.tile(bit_patterns(kind), 6).reshape(6, -1)
        index: Any = {
            "scalar": (1, 1),
            "empty": slice(0, 0),
            "strided": (slice(None, None, 2), slice(1, None, 3)),
            "offset": slice(2, None),
        }[layout]
        found, expected = as_array(tensor(array)[index], "x"), np.asarray(array[index])
        assert (found.dtype, found.shape, found.tobytes()) == (kind.numpy, expected.shape, expected.tobytes())
        transposed = as_array(tensor(array).T, "x")
        assert transposed.tobytes() == array.T.tobytes()


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in QUANTIZED])
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_all_other_dtypes_are_refused_by_name(name: str) -> None:
    value = torch.empty(4, dtype=NAMES[name])
    with pytest.raises(rlx.UnsupportedError, match=rf"input 'x' is a tensor of torch\.{name}(.|\n)*hint: ") as problem:
        as_array(value, "input 'x'")
    assert problem.value.hint == torch_hint(name)
    with pytest.raises(rlx.Error, match=f"input 'x'.*torch.{name}"):
        g = rlx.Graph("main")
        g.set_outputs([g.input("x", (4,), "u8")])
        rlx.evaluate(g, {"x": value})


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_quantized_tensors_are_refused_by_name() -> None:
    made = 0
    for name in QUANTIZED:
        try:
            value = torch.quantize_per_tensor(torch.ones(4), 0.5, 0, NAMES[name])
        except RuntimeError:  # PyTorch cannot create a tensor of this dtype in this way
            continue
        made += 1
        with pytest.raises(rlx.Error, match=rf"input 'x' is a quantized tensor, torch\.{name}(.|\n)*dequantize"):
            as_array(value, "input 'x'")
    assert made >= 3


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_module_with_a_dtype_that_rlx_lacks() -> None:
    class Halves(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.zeros(3, dtype=torch.complex32))

        def forward(self, x: Any) -> Any:
            return x + self.w.to(torch.complex64)

    with pytest.raises(rlx.UnsupportedError, match=r"'w' is a tensor of torch\.complex32(.|\n)*complex64"):
        rlx.from_torch(Halves(), torch.ones(3, dtype=torch.complex64))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_norms_of_narrow_floats_are_rounded_once(kind: str, training: bool) -> None:
    """Results are the roundings of the exact ones. PyTorch rounds statistics of the input first; running ones it does not."""
    narrow = TAKEN[rlx.dtype(kind)]
    generator = torch.Generator().manual_seed(3)
    x = (torch.randn(8, 5, 6, 7, generator=generator) * 2 + 0.7).to(narrow)
    norm = torch.nn.BatchNorm2d(5).to(narrow).train(training)
    with torch.no_grad():
        for weight, low, high in (
            (norm.weight, 0.3, 2),
            (norm.bias, -1, 1),
            (norm.running_mean, -1, 1),
            (norm.running_var, 0.2, 3),
        ):
            weight.uniform_(low, high, generator=generator)
    g = rlx.from_torch(norm, (x,))
    (found,) = (r for r in rlx.evaluate(g, {g.inputs[0].name: x}) if r.ndim == 4)
    exact = norm.double()(x.double()).detach()
    assert found.dtype == rlx.dtype(kind).numpy
    assert np.array_equal(found.astype(np.float64), exact.to(narrow).double().numpy())
