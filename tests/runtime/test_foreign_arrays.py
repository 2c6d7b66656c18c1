"""Every kind of object for every argument that takes an array: a right result, or an error that names the argument."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.iree import transfer
from tests.conformance.failures import Failures
from tests.runtime.foreign_arrays import KINDS, Arrayed, Kind, Lent

SHAPE = (2, 3)
# In graphs with these roles, the roles that are not tested are 0.
ROLES = ("x", "w", "s")


def graph(dtype: str = "f32") -> rlx.Graph:
    """Return the sum of an input, a parameter and a state."""
    g = rlx.Graph("roles")
    x, w, s = g.input("x", SHAPE, dtype), g.param("w", SHAPE, dtype), g.state("s", SHAPE, dtype)
    g.set_outputs([x + w + s])
    return g


class Programs:
    """Compiled programs by device and dtype, with parameters and states of 0."""

    def __init__(self) -> None:
        self._programs: dict[tuple[str, str], rlx.Program] = {}

    def shared(self, device: str, dtype: str) -> rlx.Program:
        """Return the program shared by all tests that do not change it."""
        key = device, dtype
        if key not in self._programs:
            params = {"w": zeros(dtype)}
            self._programs[key] = rlx.Session(device, threads=1).compile(graph(dtype), params=params)
        return self._programs[key]

    def new(self, device: str, dtype: str) -> rlx.Program:
        """Return a newly loaded program."""
        program = rlx.Program(self.shared(device, dtype).artifact, threads=1)
        program.set_param("w", zeros(dtype))
        return program


def zeros(dtype: str) -> np.ndarray:
    return np.zeros(SHAPE, rlx.dtype(dtype).numpy)


@pytest.fixture(scope="module")
def programs() -> Programs:
    return Programs()


Entry = Callable[[Programs, Any, str], np.ndarray]


def _run(device: str) -> Entry:
    return lambda programs, value, dtype: programs.shared(device, dtype).run({"x": value})[0]


def _run_lent(programs: Programs, value: Any, dtype: str) -> np.ndarray:
    """Large arrays are lent to the program after two calls with copies. Here all arrays count as large."""
    before, transfer.COPY_LIMIT = transfer.COPY_LIMIT, 0
    try:
        program = programs.new("cpu", dtype)
        return [program.run({"x": value})[0] for _ in range(4)][-1]
    finally:
        transfer.COPY_LIMIT = before


def _set_param(programs: Programs, value: Any, dtype: str) -> np.ndarray:
    program = programs.new("cpu", dtype)
    program.set_param("w", value)
    return program.run({"x": zeros(dtype)})[0]


def _set_params(device: str) -> Entry:
    def call(programs: Programs, value: Any, dtype: str) -> np.ndarray:
        program = programs.new(device, dtype)
        program.set_params({"w": value})
        return program.run({"x": zeros(dtype)})[0]

    return call


def _set_state(loaded: bool) -> Entry:
    def call(programs: Programs, value: Any, dtype: str) -> np.ndarray:
        program = programs.new("cpu", dtype)
        if loaded:
            program.load()
        program.set_state("s", value)
        return program.run({"x": zeros(dtype)})[0]

    return call


def _evaluate(role: str) -> Entry:
    return lambda _, value, dtype: rlx.evaluate(graph(dtype), dict.fromkeys(ROLES, zeros(dtype)) | {role: value})[0]


def _constant(_: Programs, value: Any, dtype: str) -> np.ndarray:
    g = rlx.Graph("constant")
    g.set_outputs([g.constant(value)])
    return rlx.evaluate(g, {})[0]


ENTRIES: dict[str, Entry] = {
    "input 'x' of evaluate": _evaluate("x"),
    "param 'w' of evaluate": _evaluate("w"),
    "state 's' of evaluate": _evaluate("s"),
    "input 'x' of run": _run("cpu"),
    "input 'x' of run, lent": _run_lent,
    "input 'x' of run on XLA": _run("xla"),
    "param 'w' of set_param": _set_param,
    "param 'w' of set_params": _set_params("cpu"),
    "param 'w' of set_params on XLA": _set_params("xla"),
    "state 's' of set_state": _set_state(loaded=False),
    "state 's' of set_state when loaded": _set_state(loaded=True),
    "constant": _constant,
}


def base(dtype: str = "f32") -> np.ndarray:
    """Return two equal rows."""
    return np.broadcast_to(np.array([0.5, -1.5, 2.0]), SHAPE).astype(rlx.dtype(dtype).numpy)


def check(kind: Kind, entry: str, programs: Any, dtype: str = "f32") -> None:
    array = base(dtype)
    value = kind.make(array)
    if kind.right:
        found = ENTRIES[entry](programs, value, dtype)
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype and type(found) is np.ndarray
        return
    if entry == "constant" and dtype == "f32" and kind is KINDS["wider"]:
        return  # a constant has the dtype of its array
    with pytest.raises(rlx.Error) as caught:
        ENTRIES[entry](programs, value, dtype)
    name = entry.partition(" of ")[0]
    assert name in caught.value.message, caught.value.message
    if entry != "constant":
        caught.match(kind.message)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_kind_at_every_place(entry: str, programs: Programs) -> None:
    if entry.endswith("XLA"):
        pytest.importorskip("jax")
    failures = Failures()
    for name, kind in KINDS.items():
        with failures.of(name):
            check(kind, entry, programs)
    failures.check()


# --- PyTorch and JAX, if installed -----------------------------------------------------------------------


def _torch_kinds(torch: Any) -> dict[str, tuple[str, Callable[[np.ndarray], Any], str]]:
    """Return by name a dtype, a function that converts an array, and the message of the refusal (empty if accepted)."""

    def tensor(array: np.ndarray) -> Any:
        if not rlx.dtype(array.dtype).is_numpys_own:
            return torch.from_numpy(array.astype(np.float32)).to(getattr(torch, array.dtype.name))
        return torch.from_numpy(array.copy())

    def embedded(array: np.ndarray) -> Any:
        whole = tensor(np.zeros((SHAPE[0] * 2, SHAPE[1] * 2), np.float32).astype(array.dtype))
        view = whole[1::2, ::2]
        view.copy_(tensor(array))
        return view

    right = {
        "strided": embedded,
        "requires a gradient": lambda a: tensor(a).requires_grad_(),
        "parameter": lambda a: torch.nn.Parameter(tensor(a)),
        "expanded": lambda a: tensor(a)[:1].expand(SHAPE),
    }
    kinds = {f"{name}, {d}": (d, make, "") for name, make in right.items() for d in ("f32", "bf16", "c64")}
    kinds["strided, f8"] = ("f8e4m3fn", embedded, "")
    kinds["i32"] = ("i32", tensor, "")
    kinds["conjugate"] = ("c64", lambda a: tensor(a.conj()).conj(), "")
    kinds["negative"] = ("f32", lambda a: torch.complex(tensor(a), tensor(-a)).conj().imag, "")
    kinds["other dtype"] = ("f32", lambda a: tensor(a).double(), "float64")
    kinds["f8"] = ("f32", lambda a: tensor(a).to(torch.float8_e4m3fn), "float8_e4m3fn")
    for name in ("int4", "uint4", "int7", "float4_e2m1fn_x2", "complex32"):
        kinds[name] = (
            "f32",
            lambda a, name=name: torch.empty(SHAPE, dtype=getattr(torch, name)),
            f"torch.{name}(.|\n)*hint",
        )
    kinds["sparse"] = ("f32", lambda a: tensor(a).to_sparse(), "to_dense")
    kinds["meta"] = ("f32", lambda a: tensor(a).to("meta"), "no values")
    kinds["quantized"] = (
        "f32",
        lambda a: torch.quantize_per_tensor(tensor(a), 0.5, 0, torch.quint8),
        "quantized",
    )
    return kinds


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("entry", ENTRIES)
def test_torch(entry: str, programs: Programs) -> None:
    if entry.endswith("XLA"):
        pytest.importorskip("jax")
    failures = Failures()
    for name, (dtype, make, message) in _torch_kinds(pytest.importorskip("torch")).items():
        with failures.of(name):
            kind = Kind(make, not message, message)
            if not (entry == "constant" and name in ("other dtype", "f8")):
                check(kind, entry, programs, dtype)
    failures.check()


def test_torch_on_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a stand-in for PyTorch with the attributes that the boundary uses."""

    class Tensor:
        device = SimpleNamespace(type="cuda")

        def __array__(self) -> Any:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor))  # type: ignore[arg-type]
    with pytest.raises(rlx.Error, match=r"param 'w' is a tensor on the device[^\n]*\n  hint: [^\n]*tensor\.cpu\(\)"):
        rlx.evaluate(graph(), {"x": zeros("f32"), "w": Tensor()})


@pytest.mark.parametrize("entry", ENTRIES)
def test_jax(entry: str, programs: Programs) -> None:
    jax = pytest.importorskip("jax")
    failures = Failures()
    for dtype in ("f32", "bf16", "c64", "i32"):
        with failures.of(dtype):
            check(Kind(jax.numpy.asarray), entry, programs, dtype)
    with failures.of("deleted"):
        check(Kind(lambda a: _deleted(jax, a), False, "deleted"), entry, programs)

    def traced(array: Any) -> Any:
        check(Kind(lambda _: array, False, "Tracer"), entry, programs)
        return array

    with failures.of("traced"):
        jax.jit(traced)(base())
    failures.check()


def _deleted(jax: Any, array: np.ndarray) -> Any:
    found = jax.numpy.array(array)
    found.delete()
    return found


# --- functions of several arrays -----------------------------------------------------------------------------


def test_every_way_in_names_its_argument(tmp_path: Any) -> None:
    """The other entry points name refused objects, and take tensors like PyTorch's."""
    masked = np.ma.masked_array(np.zeros(SHAPE, np.float32))
    g = graph()
    with pytest.raises(rlx.Error, match="param 'w' must be a plain array"):
        rlx.Session("cpu").compile(g, params={"w": masked})

    symbolic = rlx.Graph("bucketed")
    symbolic.set_outputs([symbolic.input("x", ("n", 3)) + symbolic.param("w", (3,))])
    bucketed = rlx.Session("cpu", threads=1).compile(
        symbolic, buckets={"n": [2]}, params={"w": Arrayed(np.ones(3, "f4"))}
    )
    assert bucketed.run({"x": Lent(base())})[0].tolist() == (base() + 1).tolist()
    with pytest.raises(rlx.Error, match="input 'x' must be a plain array"):
        bucketed.run({"x": masked})

    @rlx.model
    def added(x: rlx.Input(2, 3), w: rlx.Param(2, 3)):
        return x + w

    assert added(Arrayed(base()), w=Lent(base())).tolist() == (2 * base()).tolist()
    with pytest.raises(rlx.Error, match="input 'x' must be a plain array"):
        added(masked, w=base())
    with pytest.raises(rlx.Error, match="param 'w' must be a plain array"):
        added(base(), w=masked)
    with pytest.raises(rlx.Error, match=r"model 'added'.*'w'"):
        added(base())

    loss = rlx.Graph("loss")
    loss.set_outputs([loss.sum(loss.input("x", SHAPE) * loss.param("w", SHAPE))])
    step = rlx.train.TrainStep(loss, rlx.train.SGD(0.1), params={"w": Lent(base())})
    assert step({"x": Arrayed(base())})["loss"] == float((base() * base()).sum())
    with pytest.raises(rlx.Error, match="input 'x' must be a plain array"):
        step({"x": masked})
    with pytest.raises(rlx.Error, match="'w' must be a plain array"):
        step.set_params({"w": masked})

    h = rlx.Graph("operands")
    x = h.input("x", SHAPE)
    for operand in (masked, np.zeros(SHAPE, ">f4"), np.zeros(SHAPE, object), np.zeros(SHAPE, "M8[s]")):
        with pytest.raises(rlx.Error, match=r"test_foreign_arrays.py:\d+"):
            _ = x + operand
        with pytest.raises(rlx.Error, match=r"test_foreign_arrays.py:\d+"):
            h.matmul(x, operand)
