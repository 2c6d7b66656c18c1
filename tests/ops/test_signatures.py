"""The signatures of the op methods, which `help` and editors show, match the accepted arguments."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import rlx
from rlx import ops
from rlx.ir.op import registry
from rlx.ops import surface

PACKAGE = Path(rlx.__file__).parents[1]
registry.load()
# Ops whose arguments determine the number of results.
SEVERAL = {"if_", "while_", "scan", "custom", "custom_fn", "checkpoint", "elementwise_region"}
SEVERAL |= {"fake_quantize", "optimization_barrier"}
SEVERAL |= {f"{kind}max_pool{rank}" for kind in ("", "adaptive_") for rank in ("", "1d", "2d", "3d")}
HIDDEN = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]


METHODS = sorted(surface.methods())


def _signature(name: str) -> inspect.Signature:
    return inspect.signature(getattr(rlx.Graph, name))


def _page(name: str) -> str:
    return inspect.getdoc(getattr(rlx.Graph, name)) or ""


def _without_names(name: str) -> bool:
    return [p.kind for p in _signature(name).parameters.values()][1:] == HIDDEN


def _untyped(name: str) -> list[str]:
    parameters = _signature(name).parameters.values()
    untyped = {p.name for p in parameters if p.name != "self" and p.annotation in ("Any", p.empty)}
    return sorted(untyped - {"args", "kwargs", "init"})


def _unexplained(name: str) -> list[str]:
    said = re.findall(r"^    \*{0,2}(\w+): \S", _page(name).partition("Args:\n")[2], re.M)
    return [p for p in _signature(name).parameters if p != "self" and p not in said]


def test_parameters_have_names_and_types() -> None:
    assert [name for name in METHODS if next(iter(_signature(name).parameters)) != "self"] == []
    assert [name for name in METHODS if _without_names(name)] == []
    assert {name: untyped for name in METHODS if (untyped := _untyped(name))} == {}
    assert [name for name in METHODS if _signature(name).return_annotation == "Any" and name not in SEVERAL] == []


def test_functions_take_what_methods_take() -> None:
    functions = {name: list(inspect.signature(getattr(ops, name)).parameters) for name in METHODS}
    assert functions == {name: list(_signature(name).parameters)[1:] for name in METHODS}


def test_pages_have_a_summary_every_argument_and_the_errors() -> None:
    assert [name for name in METHODS if len(_page(name).partition("\n")[0]) <= len("a word")] == []
    assert {name: missing for name in METHODS if (missing := _unexplained(name))} == {}
    assert [name for name in METHODS if "\nRaises:\n    " not in _page(name)] == []
    foreign = [name for name in METHODS if "    b: " in _page(name) and "b" not in _signature(name).parameters]
    assert foreign == [], "these explain the builder, which users do not pass"


def test_what_tensors_may_be_is_typed_so() -> None:
    """`start` and `size` are sizes in most ops; here they are values, or numbers that are not sizes."""
    types = {
        ("lerp", "start"): "TensorLike",
        ("dynamic_slice", "starts"): "TensorLike | Sequence[TensorLike]",
        ("dynamic_slice_in_dim", "start"): "TensorLike",
        ("dynamic_update_slice_in_dim", "start"): "TensorLike",
        ("arange", "start"): "Size | float",
    }
    for (name, argument), text in types.items():
        assert inspect.signature(getattr(rlx.Graph, name)).parameters[argument].annotation == text


def test_a_call_takes_what_the_signature_shows() -> None:
    g = rlx.Graph("calls")
    x = g.input("x", (2, 8))
    calls = {
        "softmax": {"x": x, "axis": 0},
        "gelu": {"x": x},
        "add": {"lhs": x, "rhs": x, "shape": (2, 8)},
        "layer_norm": {"x": x, "scale": g.param("scale", (8,)), "bias": g.param("bias", (8,)), "eps": 1e-6},
        "concat": {"xs": [x, x], "axis": 1},
        "fftshift": {"x": x, "axes": (1,)},
    }
    for name, arguments in calls.items():
        inspect.signature(getattr(g, name)).bind(**arguments)
        getattr(g, name)(**arguments)


def test_help_names_the_definition() -> None:
    """The last line of every method's page is the file and the class, function or row of a table that defines it."""
    wrong = []
    for name in METHODS:
        found = re.fullmatch(r"Defined in (rlx/[\w/]+\.py): (\w+)\.", _page(name).splitlines()[-1])
        if found is None or not re.search(
            rf"^(class|def) {found[2]}\b|\"{found[2]}\"", (PACKAGE / found[1]).read_text(), re.M
        ):
            wrong.append(name)
    assert not wrong
