"""Errors of the language of kernels: at the user's line, with a hint, with NumPy and when compiled."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dims.dim import dim
from rlx.kernels import registry
from rlx.kernels.registry import CpuKernel
from tests.kernels import misuses_of_loops
from tests.kernels.misuses import MISUSES, N, Wrong, X, place_of

assert misuses_of_loops


def _compile(name: str, x: Any = (4, 12)) -> None:
    g = rlx.Graph("wrong")
    g.set_outputs([g.custom(Wrong, g.input("x", x), g.input("n", (12,), "i32"))])
    rlx.Session("cpu").compile(g, kernels=f"off +{name}")


@pytest.mark.parametrize(("made", "message", "hint"), MISUSES, ids=lambda v: getattr(v, "name", ""))
def test_misuse(made: CpuKernel, message: str, hint: str) -> None:
    (code,) = (cell.cell_contents for cell in made.function.__closure__ or ())
    place = place_of(code)
    for run in (lambda: made.run(X, N), lambda: _compile(made.name)):
        with pytest.raises(rlx.Error) as caught:
            run()
        error = caught.value
        assert message in error.message, error
        assert hint in (error.hint or ""), error
        assert place in (error.location or ""), error
        assert (error.location or "").startswith(str(Path(__file__).parent)), error


def test_operands_stay_as_they_are() -> None:
    x = X.copy()
    made = next(made for made, *_ in MISUSES if made.name == "wrong_written_operand")
    with pytest.raises(rlx.Error):
        made.run(x, N)
    np.testing.assert_array_equal(x, X)


# --- declarations and choices -------------------------------------------------------------------------


def _fails(call: Callable[[], object], message: str, hint: str = "") -> rlx.Error:
    with pytest.raises(rlx.Error) as caught:
        call()
    assert re.search(message, str(caught.value)), caught.value
    assert hint in (caught.value.hint or ""), caught.value
    return caught.value


def some(k: Any, x: Any, n: Any, y: Any, *, factor: float) -> None:
    y[0, 0] = x[0, 0] * factor


def test_wrong_declarations() -> None:
    declare: Any = rlx.kernel
    _fails(lambda: declare("language.wrnog"), "no op|unknown|wrnog")
    _fails(lambda: declare(some), "expected an op's name", "@rlx.kernel")
    _fails(lambda: declare(3), "expected an op's name", "@rlx.kernel")
    _fails(lambda: declare(Wrong, takes="f32"), "takes is a function of a case", "takes=lambda case")
    _fails(lambda: declare(Wrong)(3), "a kernel is a function")
    _fails(lambda: declare(Wrong, name="two words")(some), "not the name of a kernel", "letters")
    _fails(lambda: declare(Wrong)(lambda k, x, n, y: None), "not the name of a kernel", "name=")
    _fails(lambda: declare(Wrong, tkes=None), "tkes", "takes")


def test_two_kernels_of_one_name() -> None:
    rlx.kernel(Wrong, name="language_twice", pays=lambda case: False)(some)

    def other(k: Any, x: Any, n: Any, y: Any, *, factor: float) -> None:
        y[0, 0] = x[0, 0]

    _fails(
        lambda: rlx.kernel(Wrong, name="language_twice")(other), "there is a kernel 'language_twice' already", "name="
    )
    _fails(lambda: rlx.kernel("softmax", name="language_twice")(some), "of language.wrong at")
    _fails(lambda: rlx.kernel(Wrong, name="row_softmax")(other), "there is a kernel 'row_softmax' already")
    rlx.kernel(Wrong, name="language_twice", pays=lambda case: False)(some)  # a cell of a notebook that is run again


def test_a_users_kernel_precedes_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it was declared before the library was loaded."""
    library = dict(registry.load())
    monkeypatch.setattr(registry, "_kernels", {})  # other tests do not see the kernel
    rlx.kernel("softmax", name="language_softmax")(some)
    registry.load().update(library)
    assert [made.name for made in registry.kernels_of("softmax")] == ["language_softmax", "row_softmax"]


def test_wrong_choices() -> None:
    for choice, message in (
        ("off +row_sofmax", "no kernel 'row_sofmax'.*row_softmax"),
        ("sometimes", "is not one of auto, all, off"),
        ("auto softmax", "expected \\+NAME or -NAME"),
        ("auto -language.nothing", "no kernel"),
    ):
        g = rlx.Graph("g")
        g.set_outputs([g.softmax(g.input("x", (3, 4)))])
        _fails(lambda choice=choice, g=g: rlx.Session("cpu").compile(g, kernels=choice), message)
    _fails(lambda: rlx.Session("xla").compile(g, kernels="off +row_softmax"), "has no kernels", "cpu")


def _both(made: CpuKernel, message: str, hint: str = "") -> None:
    for call in (lambda: made.run(X, N), lambda: _compile(made.name)):
        error = _fails(call, message, hint)
        assert (error.location or "").startswith(str(Path(__file__).parent)), error


def test_wrong_parameters() -> None:
    def missing(k: Any, x: Any, y: Any, *, factor: float) -> None:
        y[0, 0] = x[0, 0]

    def without_attribute(k: Any, x: Any, n: Any, y: Any) -> None:
        y[0, 0] = x[0, 0]

    def too_many(k: Any, x: Any, n: Any, y: Any, workspace: Any, *, factor: float) -> None:
        y[0, 0] = x[0, 0]

    for function, message in ((missing, "too many positional"), (without_attribute, "factor"), (too_many, "workspace")):
        made = rlx.kernel(Wrong, name=f"language_{function.__name__}", pays=lambda case: False)(function)
        hint = "language.wrong has 2 operands, 1 result: it is called with k and 3 buffers, and factor= by name"
        _both(made, message, hint)


def test_functions_of_cases_that_raise() -> None:
    def takes(case: Any) -> bool:
        return case.tensors[7].rank > 1

    made = rlx.kernel(Wrong, name="language_takes", takes=takes, pays=lambda case: False)(some)
    _both(made, "takes of the kernel 'language_takes' raised IndexError")
    wrong: Any = (
        ("workspace", lambda case: (3, 4), "is a list of shapes"),
        ("workspace", lambda case: case.tensors[9], "raised IndexError"),
        ("plan", lambda case: case.tensors[9], "plan of the kernel .* raised IndexError"),
        ("numbers", lambda case: {"many": 1.5}, "are integers by name"),
        ("numbers", lambda case: 3, "are integers by name"),
    )
    for i, (option, function, message) in enumerate(wrong):
        made = rlx.kernel(Wrong, name=f"language_option_{i}", pays=lambda case: False, **{option: function})(some)
        _both(made, message)


def test_wrong_open_axes() -> None:
    wrong: Any = (
        (lambda case: [[(0, 0), (1, 0)]], "are lists of .tensor, axis. with equal sizes: the sizes of"),
        (lambda case: [[(9, 0)]], "with equal sizes"),
        (lambda case: [3], "with equal sizes"),
        (lambda case: 3, "with equal sizes"),
        (lambda case: case.tensors[9], "open_axes of the kernel .* raised IndexError"),
    )
    for i, (function, message) in enumerate(wrong):
        made = rlx.kernel(Wrong, name=f"language_axes_{i}", pays=lambda case: False, open_axes=function)(some)
        error = _fails(lambda made=made: _compile(made.name), message)
        assert (error.location or "").startswith(str(Path(__file__).parent)), error


def test_workspace_of_an_unknown_size() -> None:
    made = rlx.kernel(
        Wrong,
        name="language_twice_n",
        pays=lambda case: False,
        workspace=lambda case: [rlx.Shape((2 * dim("n"),), rlx.f32)],
    )(some)
    _fails(lambda: _compile(made.name, ("n", 12)), "is not a size of an operand or a result")


def test_run_reports_wrong_calls() -> None:
    made = next(made for made, *_ in MISUSES if made.name == "wrong_nothing_written")
    _fails(lambda: made.run(X), "wrong|missing|n")
    _fails(lambda: made.run(X, N, N), "3|too many|takes")
    _fails(lambda: made.run(X, N, cpu="pentium"), "no kernels for the CPU 'pentium'", "x86-64-v3")
    _fails(lambda: made.run(X, N, fctor=2.0), "fctor")
    _fails(lambda: made.run(X.astype(np.float16), N), "kernels do not compute with f16", "takes=")
