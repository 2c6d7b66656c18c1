"""ONNX's own test cases, one for each use of each op: models with inputs and expected results."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

import rlx

_FEW = 64


class Case(NamedTuple):
    """A model of a node, its inputs by name, the expected results, and the tolerances."""

    name: str
    model: bytes
    inputs: dict[str, Any]
    expected: list[Any]
    rtol: float
    atol: float

    @property
    def needs_all(self) -> bool:
        """Whether the number of result elements depends on the values of all inputs."""
        return any(word in self.name for word in ("nonmaxsuppression", "unique", "nonzero"))


@cache
def cases() -> list[Case]:
    """Return all cases, in ONNX's order."""
    found: list[Case] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's warnings about the values that ONNX generates
        collect: Any = collect_testcases
        tests: list[Any] = collect(None)
    for test in tests:
        inputs, expected = test.data_sets[0]
        given = {i.name: _array(v) for i, v in zip(test.model.graph.input, inputs, strict=False)}
        wanted = [_array(v) for v in expected]
        found.append(Case(test.name, test.model.SerializeToString(), given, wanted, test.rtol, test.atol))
    return found


def _array(value: Any) -> Any:
    """Return a tensor of ONNX as an array, and a sequence as a list of arrays."""
    if isinstance(value, onnx.SequenceProto):
        return [_array(v) for v in onnx.numpy_helper.to_list(value)]
    if isinstance(value, onnx.OptionalProto):
        return _array(onnx.numpy_helper.to_optional(value))
    if isinstance(value, (list, tuple)):
        return [_array(v) for v in value]
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def imported(case: Case) -> rlx.Graph:
    """Return the graph of a case. Inputs that must be known (shapes, axes, sequences) are constants.

    Raises:
        Error: It cannot be imported.
    """
    given = {n: v if v is None or isinstance(v, list) else np.asarray(v) for n, v in case.inputs.items()}
    fixed = {n: v for n, v in given.items() if not isinstance(v, np.ndarray)}
    try:
        return rlx.from_onnx(case.model, constants=fixed)
    except rlx.Error:
        few = {n: v for n, v in given.items() if isinstance(v, np.ndarray) and v.size <= _FEW}
        known = {n: v for n, v in few.items() if case.needs_all or v.dtype.kind in "iub" or v.ndim <= 1}
        return rlx.from_onnx(case.model, constants=fixed | known)


def check(case: Case, got: Any) -> None:
    """Compare results with those of the case: dtypes, shapes, integers exactly, floats within ONNX's tolerance.

    bf16 and f16 may differ by two units, because ONNX's expansions of ops round at every step.
    """
    expected = [part for value in case.expected for part in (value if isinstance(value, list) else [value])]
    for mine, theirs in zip(got, expected, strict=True):
        wanted = np.asarray(theirs)
        assert (mine.dtype, mine.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind in "iub":
            np.testing.assert_array_equal(mine, wanted)
            continue
        rtol = {"bfloat16": 2**-6, "float16": 2**-9}.get(wanted.dtype.name, case.rtol)
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        # The error of a transform is relative to its greatest element.
        atol = 1e-7 * np.abs(wanted).max() if "dft" in case.name else case.atol
        np.testing.assert_allclose(mine.astype(wide), wanted.astype(wide), rtol=rtol, atol=atol)
