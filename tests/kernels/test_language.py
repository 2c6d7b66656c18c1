"""The meaning of the language of kernels: compiled code gives the numbers of NumPy, at each CPU level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import rlx
from examples import cpu_kernel
from rlx.kernels.buffer import Buffer
from rlx.kernels.kernel import Kernel
from rlx.kernels.operations import OPERATIONS
from rlx.numerics.arithmetic import COMPARISONS
from rlx.targets.iree.cpu_operations import kernel_cpu
from tests.conformance.compiled import compile_graphs, contiguous
from tests.conformance.failures import Failures
from tests.conformance.levels import skip_if_not_run
from tests.drawing import drawn, of_which
from tests.kernels import experiments_of_control, experiments_of_memory, experiments_of_values
from tests.kernels.experiments import EXPERIMENTS, Experiment
from tests.kernels.experiments_of_values import METHODS

NAMES = tuple(EXPERIMENTS)
_SHARES = 4
assert experiments_of_values and experiments_of_control and experiments_of_memory


def _same(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float, what: str) -> None:
    assert len(got) == len(wanted)
    for number, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{what}, result {number}"
        if tolerance:
            np.testing.assert_allclose(a, b, rtol=tolerance, err_msg=f"{what}, result {number}")
        else:
            # Equal zeros may have different signs: min and max may return any of them.
            np.testing.assert_array_equal(a, b, err_msg=f"{what}, result {number}", strict=True)


def _interpreted(e: Experiment, arrays: Sequence[np.ndarray], cpu: str) -> list[np.ndarray]:
    result: Any = e.kernel.run(list(arrays), cpu=cpu)
    return [np.asarray(a) for a in (result if isinstance(result, tuple) else (result,))]


def test_all_operations_are_tried() -> None:
    assert set(METHODS) == set(OPERATIONS)
    assert set(experiments_of_values.RELATIONS) == set(COMPARISONS)


@pytest.mark.parametrize("name", NAMES)
def test_numpy(name: str) -> None:
    e = EXPERIMENTS[name]
    if e.expected is None:
        pytest.skip("the results depend on the CPU's vectors")
    for cpu in ("x86-64", "x86-64-v4"):
        for arrays in e.runs:
            _same(_interpreted(e, arrays, cpu), e.expected(*arrays), e.tolerance, f"{name} {cpu}")


@drawn("level", ("host", "x86-64", "x86-64-v3", "aarch64"), weights={"aarch64": 0.15})
@of_which("share")
@pytest.mark.parametrize("share", range(_SHARES))
def test_compiled(share: int, level: str) -> None:
    chosen = [EXPERIMENTS[name] for name in NAMES[share::_SHARES]]
    programs = compile_graphs([e.graph() for e in chosen], level=level, kernels="all")
    assert [p.problem for p in programs] == [None] * len(chosen)
    skip_if_not_run(level, programs)
    failures = Failures()
    for e, program in zip(chosen, programs, strict=True):
        for arrays in e.runs:
            what = f"{e.kernel.name} {[a.shape for a in arrays]}"
            with failures.of(what):
                wanted = _interpreted(e, arrays, kernel_cpu(level, ()))
                _same(program.run(contiguous(arrays)), wanted, e.tolerance, what)
    failures.check()


class Scaled(rlx.CustomOp, name="language.scaled"):
    """`scale·x`, shifted if there is a shift, in the columns of a tuple; with two results."""

    num_results = 2

    def infer(self, x: rlx.Shape, shift: Any = None, *, scale: float, columns: tuple[int, ...] = (0,)) -> Any:
        return x, x

    def evaluate(self, x: Any, shift: Any, *, scale: float, columns: tuple[int, ...]) -> Any:
        y = np.zeros_like(x)
        y[:, list(columns)] = (x * np.float32(scale) + (0 if shift is None else shift))[:, list(columns)]
        return y, -y


@rlx.kernel(Scaled, name="language_scaled")
def scaled(
    k: Kernel,
    x: Buffer,
    shift: Buffer | None,
    y: Buffer,
    negated: Buffer,
    *,
    scale: float,
    columns: tuple[int, ...],
) -> None:
    for i in k.parallel(x.shape[0], 2):
        for j in range(4):
            value = x[i, j] * scale if j in columns else x[i, j] * 0
            if shift is not None and j in columns:
                value = value + shift[j]
            y[i, j], negated[i, j] = value, -value


@pytest.mark.parametrize("is_shifted", [False, True])
def test_optional_operands_and_attributes(is_shifted: bool) -> None:
    g = rlx.Graph("scaled")
    operands = [g.input("x", ("n", 4)), *([g.input("shift", (4,))] if is_shifted else [])]
    g.set_outputs(list(g.custom(Scaled, *operands, scale=0.5, columns=(1, 3))))
    x, shift = np.arange(20, dtype=np.float32).reshape(5, 4), np.arange(4, dtype=np.float32) * 8
    inputs = {"x": x} | ({"shift": shift} if is_shifted else {})
    wanted = rlx.evaluate(g, inputs)
    _same(rlx.Session("cpu").compile(g).run(inputs), wanted, 0, "compiled")
    _same(scaled.run(x, *([shift] if is_shifted else []), scale=0.5, columns=(1, 3)), wanted, 0, "NumPy")


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    cpu_kernel.main(rows=20, columns=33)
    differences = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(differences) == 3
    assert max(differences) < 1e-5


def test_captured_numbers_select_the_program() -> None:
    """A kernel that is declared again with another captured number is not read from the cache."""
    x = np.arange(5, dtype=np.float32)

    def declare(factor: float) -> None:
        @rlx.kernel(Captured, name="language_captured")
        def captured(k: Kernel, x: Buffer, y: Buffer) -> None:
            for c in k.vectors(x.shape[0]):
                y[c] = x[c] * factor

    for factor in (2.0, 3.0):
        declare(factor)
        g = rlx.Graph("captured")
        g.set_outputs([g.custom(Captured, g.input("x", (5,)))])
        _same(rlx.Session("cpu").compile(g).run({"x": x}), [x * np.float32(factor)], 0, f"{factor}")


class Captured(rlx.CustomOp, name="language.captured"):
    """An op whose kernel captures a number."""

    def infer(self, x: rlx.Shape) -> rlx.Shape:
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x
