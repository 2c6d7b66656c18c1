"""What `help` and editors show of the op methods is what they take."""

from __future__ import annotations

import inspect
import re

import pytest

import rlx
from rlx import ops
from rlx.ir import registry
from rlx.ops import surface

registry.load()
# Those whose arguments say how many results there are.
SEVERAL = {"if_", "while_", "scan", "custom", "custom_fn", "checkpoint", "elementwise_region"}
SEVERAL |= {"fake_quantize", "optimization_barrier"}
SEVERAL |= {f"{kind}max_pool{rank}" for kind in ("", "adaptive_") for rank in ("", "1d", "2d", "3d")}
HIDDEN = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]


@pytest.mark.parametrize("name", sorted(surface.methods()))
def test_parameters_have_names(name: str) -> None:
    shown = inspect.signature(getattr(rlx.Graph, name))
    assert next(iter(shown.parameters)) == "self"
    assert [p.kind for p in shown.parameters.values()][1:] != HIDDEN, shown
    function = inspect.signature(getattr(ops, name))
    assert list(function.parameters) == list(shown.parameters)[1:]
    untyped = [p.name for p in shown.parameters.values() if p.name != "self" and p.annotation in ("Any", p.empty)]
    assert not set(untyped) - {"args", "kwargs", "init"}, "every argument says what it takes"
    assert shown.return_annotation != "Any" or name in SEVERAL
    page = inspect.getdoc(getattr(rlx.Graph, name)) or ""
    assert len(page.splitlines()[0]) > len("a word")
    assert ("    b: " in page) == ("b" in shown.parameters and "Args:" in page)


@pytest.mark.parametrize("name", sorted(surface.methods()))
def test_pages_say_every_argument_and_the_errors(name: str) -> None:
    page = inspect.getdoc(getattr(rlx.Graph, name)) or ""
    said = re.findall(r"^    \*{0,2}(\w+): \S", page.partition("Args:\n")[2], re.M)
    parameters = [p for p in inspect.signature(getattr(rlx.Graph, name)).parameters if p != "self"]
    assert [p for p in parameters if p not in said] == []
    assert "\nRaises:\n    " in page


def test_what_tensors_may_be_is_typed_so() -> None:
    """`start` and `size` are sizes in most ops; here they are values, or numbers that are no sizes."""
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
