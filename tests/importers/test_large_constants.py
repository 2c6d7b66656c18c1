"""Large constants of StableHLO modules and JAX functions: they stay outside of MLIR, and their values are unchanged."""

from __future__ import annotations

import io
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.importers.stablehlo import large
from rlx.ir.text import bytecode
from tools.fuzz.mutators import damaged_bytes

RANDOM = np.random.default_rng(5)
# The name of an element type in StableHLO, the dtype of its bytes there, and the dtype that represents it here.
KINDS: dict[str, tuple[Any, Any]] = {
    "f16": (np.float16, np.float16),
    "bf16": (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    "f32": (np.float32, np.float32),
    "f64": (np.float64, np.float64),
    "i1": (np.bool_, np.bool_),
    "i8": (np.int8, np.int8),
    "i16": (np.int16, np.int16),
    "i32": (np.int32, np.int32),
    "i64": (np.int64, np.int64),
    "ui8": (np.uint8, np.uint8),
    "ui16": (np.uint16, np.uint16),
    "ui32": (np.uint32, np.uint32),
    "ui64": (np.uint64, np.uint64),
    "complex<f32>": (np.complex64, np.complex64),
    "complex<f64>": (np.complex128, np.complex128),
}
COUNT = 48  # elements of a constant


def random_elements(kind: str) -> np.ndarray:
    """Return random bits of a dtype."""
    dtype = np.dtype(KINDS[kind][0])
    if dtype == np.bool_:
        return RANDOM.integers(0, 2, COUNT).astype(np.bool_)
    return np.frombuffer(RANDOM.bytes(COUNT * dtype.itemsize), dtype)


def written(kind: str, value: Any) -> str:
    """Return one element in MLIR's syntax."""
    if kind == "i1":
        return str(bool(value)).lower()
    if kind.startswith("complex"):
        return f"({float(value.real)}, {float(value.imag)})"
    return str(float(value) if "f" in kind else value)


def module(constants: list[tuple[str, np.ndarray]], note: str = "") -> str:
    """Return the text of a module that returns constants."""
    types = [f"tensor<{a.size}x{kind}>" for kind, a in constants]
    lines = [
        f'  %{n} = stablehlo.constant dense<"0x{a.tobytes().hex().upper()}"> : {type_}'
        if len(set(a.tobytes())) > 1
        else f"  %{n} = stablehlo.constant dense<{written(kind, a[0])}> : {type_}"
        for n, ((kind, a), type_) in enumerate(zip(constants, types, strict=True))
    ]
    results = ", ".join(f"%{n}" for n in range(len(constants)))
    listed = ", ".join(types)
    return (
        "\n".join([f"func.func @main() -> ({listed}) {{{note}", *lines, f"  return {results} : {listed}", "}"]) + "\n"
    )


def artifact(text: str) -> bytes:
    library = mlir.stablehlo()
    with mlir.entered():
        parsed = mlir.ir.Module.parse(text, mlir.context())
        return library.serialize_portable_artifact(parsed, library.get_current_version())


def plain_bytecode(text: str) -> bytes:
    with mlir.entered():
        file = io.BytesIO()
        mlir.ir.Module.parse(text, mlir.context()).operation.write_bytecode(file)
        return file.getvalue()


def outputs(source: Any) -> list[np.ndarray]:
    return [np.asarray(a) for a in rlx.evaluate(rlx.from_stablehlo(source), {})]


def check(found: list[np.ndarray], constants: list[tuple[str, np.ndarray]]) -> None:
    assert len(found) == len(constants)
    for array, (kind, expected) in zip(found, constants, strict=True):
        held = KINDS[kind][1]
        assert array.dtype == held
        assert array.tobytes() == expected.tobytes(), kind


@pytest.fixture
def from_64_bytes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat constants of 40 bytes and more as large."""
    least = 40
    digits = rf'dense<"0x([0-9A-Fa-f]{{{2 * least},}})">'
    monkeypatch.setattr(bytecode, "LEAST", least)
    monkeypatch.setattr(large, "LEAST", least)
    monkeypatch.setattr(large, "_IN_TEXT", re.compile(digits))
    monkeypatch.setattr(large, "_IN_BYTES", re.compile(digits.encode()))


FORMS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "bytes": str.encode,
    "artifact": artifact,
    "bytecode": plain_bytecode,
}


@pytest.mark.usefixtures("from_64_bytes_on")
@pytest.mark.parametrize("form", FORMS)
def test_constants_keep_every_bit(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several constants of every dtype keep their bits, next to uniform constants that look like markers."""
    constants = [(kind, random_elements(kind)) for kind in KINDS for _ in range(3)]
    for number in range(3):
        constants += [(kind, np.full(COUNT, number, KINDS[kind][0])) for kind in ("i8", "i32", "f32", "ui16", "ui64")]
    source = FORMS[form](module(constants))
    check(outputs(source), constants)
    path = tmp_path / "m"
    path.write_bytes(source.encode() if isinstance(source, str) else source)
    check(outputs(path), constants)
    monkeypatch.undo()  # the values are the same if no constant is large
    check(outputs(source), constants)


@pytest.mark.usefixtures("from_64_bytes_on")
@pytest.mark.parametrize("number", range(4))
def test_what_is_one_number_is_not_taken_for_a_mark(number: int) -> None:
    """A uniform constant is not confused with a marker. Only one dtype of each width has uniform constants."""
    constants = [(kind, random_elements(kind)) for kind in KINDS]
    for width in (1, 2, 4, 8):
        kinds = [kind for kind, (dtype, _) in KINDS.items() if np.dtype(dtype).itemsize == width]
        kind = kinds[number % len(kinds)]
        constants += [(kind, np.full(COUNT, value, KINDS[kind][0])) for value in (0, 1)]
    check(outputs(artifact(module(constants))), constants)


@pytest.mark.usefixtures("from_64_bytes_on")
@pytest.mark.parametrize("form", FORMS)
def test_there_may_be_more_constants_than_marks(form: str) -> None:
    constants = [("i8", random_elements("i8")) for _ in range(300)]
    check(outputs(FORMS[form](module(constants))), constants)


@pytest.mark.usefixtures("from_64_bytes_on")
def test_names_in_a_text_are_its_own() -> None:
    constants = [("f32", random_elements("f32")), ("i64", random_elements("i64"))]
    for _ in range(2):  # MLIR knows the names of the first module when it reads the second
        check(outputs(module(constants, note=" // rlx_constant0 rlx_constantx1")), constants)


@pytest.mark.usefixtures("from_64_bytes_on")
@pytest.mark.parametrize(
    ("digits", "message"),
    [("A" * 201, r":2:\d+: an odd number of hexadecimal digits"), ("AB" * 100, r":2:\d+: constant: .*100 bytes.* 192")],
)
def test_wrong_digits_are_refused(digits: str, message: str) -> None:
    text = module([("f32", random_elements("f32"))])
    with pytest.raises(rlx.Error, match=message):
        rlx.from_stablehlo(re.sub("0x[0-9A-F]+", f"0x{digits}", text))


@pytest.mark.usefixtures("from_64_bytes_on")
def test_what_is_taken_out_and_put_back_is_the_same() -> None:
    for form in (artifact, plain_bytecode):
        data = form(module([(kind, random_elements(kind)) for kind in KINDS]))
        assert bytecode._File(memoryview(data))._written({}) == data
        shorter, found = bytecode.without_constants(data)
        assert len(found) == len(KINDS) - 1 and len(shorter) < len(data) - sum(len(b) for b in found.values()) // 2


@pytest.mark.usefixtures("from_64_bytes_on")
def test_damaged_bytecode_is_never_an_exception(seed: int) -> None:
    """Arbitrary bytes are split or stay unchanged, and integers are read as they were written."""
    data = artifact(module([(kind, random_elements(kind)) for kind in ("f32", "i8", "bf16")]))
    rng = random.Random(seed)
    for _ in range(2000):
        damaged = damaged_bytes(data, rng)
        shorter, found = bytecode.without_constants(damaged)
        assert found or shorter is damaged
    for bits in range(64):
        for value in (2**bits - 1, 2**bits, 2**bits + 1):
            assert bytecode._Bytes(memoryview(bytecode._number(value))).number() == value


SIZE = 48 << 20  # bytes of a constant: much more than the memory for the rest of an import
MEASURE = """
import resource, sys
from pathlib import Path
import jax, jax.numpy as jnp
import numpy as np
import rlx

small, artifact, text = (Path(name) for name in sys.argv[1:])
weights = jnp.asarray(np.random.default_rng(0).standard_normal((4, {size} // 16), np.float32))

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024

def of_children():
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024

def measure(work):
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS"), of_children()
    graph = work()
    assert len(graph.weights) == 1
    print(status("VmHWM") - before[0] + of_children() - before[1])

rlx.from_stablehlo(small.read_bytes())
rlx.from_jax(lambda x: x + 1, weights[0])
data = artifact.read_bytes()
measure(lambda: rlx.from_stablehlo(artifact))
measure(lambda: rlx.from_stablehlo(data))
measure(lambda: rlx.from_stablehlo(text))
measure(lambda: rlx.from_jax(lambda x: x * weights[1:3], weights[:2]))
measure(lambda: rlx.from_jax(lambda x: x * weights, weights))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux says what a process has used at most")
def test_an_import_takes_at_most_twice_the_file(tmp_path: Path) -> None:
    """The limit applies to the process and its children together, apart from the memory needed for a file of any size."""
    constant = ("f32", RANDOM.standard_normal(SIZE // 4).astype(np.float32))
    text = module([constant])
    (tmp_path / "small").write_bytes(artifact(module([("f32", random_elements("f32"))])))
    (tmp_path / "artifact").write_bytes(artifact(text))
    (tmp_path / "text").write_text(text)
    paths = [str(tmp_path / name) for name in ("small", "artifact", "text")]
    program = MEASURE.replace("{size}", str(SIZE))
    done = subprocess.run(
        [sys.executable, "-c", program, *paths], capture_output=True, text=True, check=True, timeout=120
    )
    used = [int(line) for line in done.stdout.split()]
    sizes = [SIZE, SIZE, 2 * SIZE, SIZE // 2, SIZE]
    ratios = [round(n / size, 2) for n, size in zip(used, sizes, strict=True)]
    assert len(ratios) == 5 and max(ratios) <= 2, ratios


def test_what_a_jax_function_closes_over_is_not_copied() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    first, second = (jnp.asarray(RANDOM.standard_normal((200, 200), np.float32)) for _ in range(2))
    zeros, few = jnp.zeros((300, 300)), jnp.asarray(RANDOM.standard_normal(2000, np.float32))

    def function(x: Any, pair: Any) -> Any:
        return {"y": jnp.tanh(x @ first) @ second + pair[0] * zeros[:200, :200], "z": pair[1] + few.sum()}

    x = RANDOM.standard_normal((200, 200), np.float32)
    pair = (np.float32(2.0), np.arange(3, dtype=np.float32))
    g = rlx.from_jax(function, x, pair)
    assert [a.name for a in g.inputs] == ["arg0", "arg1[0]", "arg1[1]"]
    assert [np.asarray(w).shape for w in g.weights.values()] == [(200, 200), (200, 200), (2000,)]
    weights = list(g.weights.values())
    assert np.shares_memory(weights[0], np.asarray(first)) and not weights[0].flags.writeable
    found = rlx.evaluate(g, dict(zip([a.name for a in g.inputs], (x, *pair), strict=True)))
    expected = function(x, pair)
    np.testing.assert_allclose(found[0], expected["y"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[1], expected["z"], rtol=1e-4)
