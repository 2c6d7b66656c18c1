"""The signatures of the op methods, which `help` and editors show, match the accepted arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx import ops
from rlx.ir.op import registry
from rlx.ops import manual, surface
from rlx.ops.operators import methods_of_tensors

PACKAGE = Path(rlx.__file__).parents[1]
registry.load()
# Ops whose arguments determine the number of results.
SEVERAL = {"if_", "while_", "scan", "custom", "custom_fn", "custom_root", "checkpoint", "elementwise_region"}
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


def _documented(page: str) -> list[str]:
    """Return the arguments in the section `Args:` of a page."""
    section = re.search(r"^Args:\n((?:    .*\n|\n(?=    ))*)", f"{page}\n", re.M)
    return re.findall(r"^    ((?:\*{0,2}\w+(?:, )?)+): ", section[1], re.M) if section else []


@pytest.mark.parametrize("owner", [rlx.Graph, ops, rlx.Tensor])
def test_pages_document_exactly_the_arguments(owner: Any) -> None:
    """Also those of tensors, whose first operand is the tensor itself."""
    wrong: dict[str, set[str]] = {}
    names = METHODS if owner is not rlx.Tensor else methods_of_tensors(surface.methods())
    for name in names:
        function = getattr(owner, name)
        documented = {n.strip("* ") for entry in _documented(inspect.getdoc(function) or "") for n in entry.split(",")}
        if difference := documented ^ (set(inspect.signature(function).parameters) - {"self"}):
            wrong[name] = difference
    assert not wrong


def test_pages_name_no_argument_that_only_the_record_has() -> None:
    """A description of the record may be about attributes and regions that the method makes from other arguments."""
    wrong: dict[str, set[str]] = {}
    for op, card in registry.registered().items():
        if op == "yield":
            continue
        name = surface.method_name(op)
        record = {entry.name for entry in (*card.spec.operands, *card.spec.attributes, *card.spec.regions)}
        prose = _page(name).partition("Args:\n")[0]
        foreign = record & set(re.findall(r"`(\w+)", prose)) - set(_signature(name).parameters)
        if foreign or (manual.foreign_names(card.spec, _signature(name)) and prose.count("\n\n") < 2):
            wrong[name] = foreign
    assert not wrong, "describe what the method takes in the docstring of `build`"


def test_pages_name_every_mode() -> None:
    """The cases of a text that are documented are those that the method takes."""
    image, g = rlx.Shape((1, 2, 4, 4)), rlx.Graph("modes")
    x, w = g.input("x", image), g.input("w", (2, 2, 3, 3))
    calls: dict[tuple[str, str], Callable[[str], object]] = {
        ("pad", "mode"): lambda mode: g.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode=mode),
        ("resize", "mode"): lambda mode: g.resize(x, (2, 2), mode=mode),
        ("conv", "padding"): lambda padding: g.conv(x, w, padding=padding),
        ("conv_transpose", "padding"): lambda padding: g.conv_transpose(x, w, padding=padding),
        ("avg_pool", "padding"): lambda padding: g.avg_pool(x, 2, padding=padding),
    }
    modes = {"constant", "reflect", "replicate", "circular", "nearest", "nearest_exact", "bilinear", "bicubic", "area"}
    for (name, argument), call in calls.items():
        said = re.search(rf"^    {argument}: (.*(?:\n {{8}}.*)*)", _page(name), re.M)
        assert said is not None
        for mode in modes | {"same", "valid"}:
            try:
                call(mode)
                accepted = True
            except rlx.Error:
                accepted = False
            assert accepted == bool(re.search(rf"['\"]{mode}['\"]", said[1])), (name, argument, mode)


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
