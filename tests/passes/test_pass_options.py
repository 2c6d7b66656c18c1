"""Passes, their options, and the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

import rlx
from rlx.ir.dim import Dim, dim
from rlx.passes import base
from rlx.passes.base import OptionError, Pass, option


@dataclass(frozen=True)
class Everything(Pass):
    """A pass with an option of every kind.

    More about it.
    """

    name = "rlx-everything"
    count: int = option(3, "how many")
    rate: float = option(0.5, "how fast")
    loud_mode: bool = option(False, "whether to shout")
    kind: str = option("a", "which", choices=("a", "b"))
    label: str = option("", "any text")
    ops: tuple[str, ...] = option((), "names")
    sizes: tuple[int, ...] = option((), "numbers")
    limit: int | None = option(None, "a number or nothing")
    except_: str = option("", "a name that Python reserves")
    bindings: Mapping[str, Dim] = option({}, "sizes", rest=True)


def parsed(**given: str | None) -> Any:
    return Everything.from_options((name.replace("_", "-"), text) for name, text in given.items())


def test_options_have_the_types_of_their_fields() -> None:
    made = parsed(count="7", rate="1e-3", loud_mode=None, kind="b", label="x y", ops="a,b", sizes="1,2", limit="-4")
    assert made == Everything(7, 1e-3, True, "b", "x y", ("a", "b"), (1, 2), -4)
    assert parsed() == Everything()
    assert parsed(loud_mode="false", ops="", sizes="").ops == ()
    assert Everything.from_options([("except", "matmul")]).except_ == "matmul"  # type: ignore[attr-defined]


def test_options_that_no_field_names_go_to_the_rest() -> None:
    assert parsed(seq="4", rows="2*batch").bindings == {"seq": 4, "rows": dim("2*batch")}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("count", "x", "option 'count' takes an integer, not 'x'"),
        ("count", None, "option 'count' takes an integer, not None"),
        ("rate", "fast", "option 'rate' takes a number, not 'fast'"),
        ("loud-mode", "yes", "option 'loud-mode' takes true or false, not 'yes'"),
        ("kind", "c", "option 'kind' is one of a, b, not 'c'"),
        ("sizes", "1,x", r"option 'sizes' takes a list \(an integer, …\), not '1,x'"),
        ("seq", "-1", "option 'seq' takes a size, not '-1'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(name: str, text: str | None, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        Everything.from_options([(name, text)])
    assert caught.value.option == name


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(OptionError, match="'count' is given twice"):
        Everything.from_options([("count", "1"), ("count", "2")])


def test_a_pass_prints_the_options_that_differ_from_the_defaults() -> None:
    assert str(Everything()) == "rlx-everything"
    made = Everything(count=7, loud_mode=True, ops=("a", "b"), label="x y", bindings={"seq": dim("2*n")})
    assert str(made) == 'rlx-everything{count=7 loud-mode=true label="x y" ops=a,b seq=2*n}'


def test_summary_and_help_come_from_the_class() -> None:
    assert Everything.summary() == "A pass with an option of every kind."
    shown = [str(o) for o in Everything.options()]
    assert shown[0] == "count=<an integer>: how many (default: 3)"
    assert shown[3] == "kind=<a|b>: which (default: a)"


def test_every_pass_is_a_file_of_its_name_with_a_summary_and_helpful_options() -> None:
    found = rlx.passes.list()
    assert {"rlx-lower-blocks", "rlx-decompose", "rlx-simplify", "rlx-constant-fold", "rlx-bind"} <= {
        p.name for p in found
    }
    for info in found:
        assert info.summary.endswith("."), info.name
        assert all(o.help for o in info.options), info.name
        package, file = base.load()[info.name].__module__.rsplit(".", 1)
        assert info.name == base.PASS_PACKAGES[package] + file.replace("_", "-")
        assert str(info).startswith(f"{info.name} - {info.summary}")


def test_a_pass_is_found_by_name_and_an_unknown_one_is_not() -> None:
    found = base.find("rlx-simplify")
    assert found is not None and found.name == "rlx-simplify"
    assert base.find("rlx-nothing") is None
    assert base.find("canonicalize") is None
    assert base.find("rlx-../simplify") is None


def test_names_are_checked_when_a_pass_is_registered() -> None:
    with pytest.raises(rlx.Error, match="'fast' is not a pass name"):

        class Fast(Pass, name="fast"):
            """Fast."""

    with pytest.raises(rlx.Error, match="pass 'rlx-simplify' exists twice"):

        class Simplify(Pass, name="rlx-simplify"):
            """Another one."""
