"""Passes, their options, and the registry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

import rlx
from rlx.ir.dims.dim import Dim, dim
from rlx.passes import base, packages
from rlx.passes.base import OptionError, Pass, option


@dataclass(frozen=True)
class Everything(Pass):
    """A pass with an option of every kind.

    More about it.
    """

    name = "rlx-everything"
    count: int = option(3, "how many")
    rate: float = option(0.5, "how fast", least=0)
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


class Undecorated(Pass):
    name = "rlx-undecorated"
    count: int = option(3, "how many")


class UndecoratedHeir(Everything):
    name = "rlx-undecorated-heir"
    more: int = option(3, "how many more")


@dataclass(frozen=True)
class PlainField(Pass):
    name = "rlx-plain-field"
    strict: bool = False


_BODY = {"name": "rlx-unknown-type", "__annotations__": {"strict": "Missing"}, "strict": option(None, "of no type")}
UnknownType: Any = dataclass(frozen=True)(type("UnknownType", (Pass,), _BODY | {"__module__": __name__}))


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Undecorated, "it is no dataclass\n  hint: decorate the class with @dataclass(frozen=True)"),
        (UndecoratedHeir, "it is no dataclass"),
        (PlainField, "its field 'strict' is no option\n  hint: strict: … = option(default, "),
        (UnknownType, "the type of an option: name 'Missing' is not defined"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_class_that_is_no_pass_is_named(cls: type[Pass], message: str) -> None:
    with pytest.raises(rlx.Error) as caught:
        cls.options()
    assert f"{__file__}: pass '{cls.name}' ({cls.__qualname__}): {message}" in str(caught.value)


_TAKEN = """
import rlx
from dataclasses import dataclass
from rlx.passes.base import Pass, load
for name in {names!r}:
    try:
        type("Mine", (Pass,), {{}}, name=name)
    except rlx.Error as problem:
        assert f"pass '{{name}}' exists twice: " in str(problem), problem
    else:
        raise AssertionError(name)
load()
print("done")
"""


def test_the_name_of_a_pass_of_rlx_is_taken_before_anybody_has_asked_for_it() -> None:
    names = sorted(name for name, cls in base.load().items() if cls.__module__.startswith("rlx."))
    assert len(names) > 20
    code = _TAKEN.format(names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


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
        ("rate", "-0.1", "option 'rate' takes a number of at least 0, not '-0.1'"),
        ("rate", "nan", "option 'rate' takes a number of at least 0, not 'nan'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(name: str, text: str | None, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        Everything.from_options([(name, text)])
    assert caught.value.option == name


def test_every_number_that_a_pass_takes_has_a_least_value() -> None:
    numbers = [(i.name, o) for i in base.infos() for o in i.options if o.type in (int, float, int | None)]
    assert len(numbers) > 5
    shipped = [(name, o) for name, o in numbers if (base.find(name) or Everything).__module__.startswith("rlx.")]
    assert [(name, o.name) for name, o in shipped if o.least is None] == []


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
        assert info.name == packages.name_of(base.load()[info.name].__module__)
        assert str(info).startswith(f"{info.name} - {info.summary}")


def test_a_pass_is_found_by_name_and_an_unknown_one_is_not() -> None:
    found = base.find("rlx-simplify")
    assert found is not None and found.name == "rlx-simplify"
    assert base.find("rlx-nothing") is None
    assert base.find("canonicalize") is None
    assert base.find("rlx-../simplify") is None


def test_names_are_checked_when_a_pass_is_registered() -> None:
    for bases, shown in (((Pass,), "Pass"), ((Everything,), "Everything")):
        hint = rf'class FoldTwoHBMs\({shown}, name="rlx-fold-two-hbms"\); abstract=True for a base class'
        with pytest.raises(rlx.Error, match=f"the pass FoldTwoHBMs has no name\n  hint: {hint}"):
            type("FoldTwoHBMs", bases, {})

    class Family(Pass, abstract=True):
        """A base class."""

    with pytest.raises(rlx.Error, match=r"the pass .*\.Member has no name"):

        class Member(Family):
            """A member without a name."""

    with pytest.raises(rlx.Error, match="'fast' is not a pass name"):

        class Fast(Pass, name="fast"):
            """Fast."""

    with pytest.raises(rlx.Error, match="pass 'rlx-simplify' exists twice"):

        class Simplify(Pass, name="rlx-simplify"):
            """Another one."""
