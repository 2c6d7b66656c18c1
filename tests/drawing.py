"""Sampling of tests that are too many for every run. The sample depends only on a seed.

`make test` draws with `SEED`, so that the sample is the same every time and everywhere. `make test SEED=7` draws
another sample, `make test SEED=random` a random one, and prints its seed. `make test-all` (`pytest --full`) runs all
tests.

Three things are drawn:

* For a test parametrised with `drawn`, some values of that parameter, for each combination of its other parameters. The
  name of a test includes all parameters, so it has the same meaning under every seed. A test that is named with its
  parameters is always run: `pytest "tests/conformance/test_compiled.py::test_compiled[cast-0-x86-64-v3]"`.
* The random data of a test: random graphs, by the fixture `seed`, and the examples of hypothesis.
* With `--quick`, as in `make test`: one in five of the costly tests of each file. `tests/costly.txt` lists them, as
  `python -m tools.costly_tests` measured them. They are 7 % of the tests and take three quarters of the time; those of
  `tests/conformance`, which find most bugs, are not on the list. CI runs them all.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from pathlib import Path
from typing import Any, TypeVar

import pytest

SEED = 0
MARK = "drawn"
COSTLY = Path(__file__).with_name("costly.txt")
_COSTLY_SHARE = 5
_LARGEST_RANDOM_SEED = 10_000
_MOST_GRAPHS = 100_000

T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., Any])


def drawn(
    name: str,
    values: Iterable[Any],
    *,
    of_each: int = 1,
    weights: Mapping[Any, float] | None = None,
    ids: Callable[[Any], str] | None = None,
) -> Callable[[Test], Test]:
    """Parametrise a test with sampling: like `pytest.mark.parametrize`, but a run has only a few values.

    Args:
        name: The parameter.
        values: All its values.
        of_each: The number of values in a run, for each combination of the other parameters.
        weights: The likelihood of each value; 1 by default.
        ids: The values' names.
    """

    def decorated(test: Test) -> Test:
        return of_which(name, of_each=of_each, weights=weights)(pytest.mark.parametrize(name, values, ids=ids)(test))

    return decorated


def of_which(
    name: str,
    *,
    of_each: int = 1,
    weights: Mapping[Any, float] | None = None,
    groups: Mapping[Any, Hashable] | None = None,
) -> pytest.MarkDecorator:
    """Sample an existing parameter of a test, as `drawn` does.

    Args:
        name: The parameter.
        of_each: The number of values in a run, for each combination of the other parameters.
        weights: The likelihood of each value; 1 by default.
        groups: Groups of values. A run then has `of_each` values of each group, and all values without a group.
    """
    return pytest.mark.drawn(name, of_each, weights or {}, groups)


def shares(things: Iterable[T], number: int, stratum: Callable[[T], Hashable]) -> list[list[T]]:
    """Deal things into shares of equal size, each with some of every stratum.

    Args:
        things: The things.
        number: The number of shares.
        stratum: The key of the stratum: things with the same key go to different shares.
    """
    strata: dict[Hashable, list[T]] = {}
    for thing in things:
        strata.setdefault(stratum(thing), []).append(thing)
    # In random order within a stratum. Otherwise the first of each, always of one dtype, would be in one share.
    dealt = [t for members in strata.values() for t in sorted(members, key=lambda t: _chance("share", str(t)))]
    return [dealt[i::number] for i in range(number)]


def graph_seed(seed: int, number: int) -> int:
    """Return the seed of a random graph, which differs for every seed of the run."""
    return seed * _MOST_GRAPHS + number


def number_of_seed(said: str | None) -> int:
    """Return the requested seed.

    Raises:
        pytest.UsageError: It is neither a number nor `random`.
    """
    if said is None or said == "":
        return SEED
    if said == "random":
        import random

        return random.randrange(1, _LARGEST_RANDOM_SEED)
    if not said.isdecimal():
        raise pytest.UsageError(f"--seed={said}: expected a number or 'random'")
    return int(said)


@dataclass(frozen=True)
class Call:
    """A test with its parameters, before pytest makes an item of it.

    Attributes:
        definition: The test without parameters.
        callspec: The parameters, as `pytest.Metafunc` has them.
    """

    definition: pytest.Item
    callspec: Any

    @property
    def nodeid(self) -> str:
        """The name of the test, without its parameters."""
        return self.definition.nodeid

    def iter_markers(self, name: str) -> Iterator[pytest.Mark]:
        """Yield the marks of a name that the test has."""
        return self.definition.iter_markers(name)


def draw(items: Sequence[Call], seed: int) -> list[Call]:
    """Return the tests of a run, in their order. One parameter is drawn after the other."""
    kept = list(items)
    for step in count():
        cases: dict[Hashable, list[Call]] = {}
        for item in kept:
            marks = list(item.iter_markers(MARK))[step:]
            if marks:
                cases.setdefault(_case(item, marks), []).append(item)
        if not cases:
            return kept
        chosen = {id(item) for case, members in cases.items() for item in _chosen(members, case, step, seed)}
        undecided = {id(item) for members in cases.values() for item in members}
        kept = [item for item in kept if id(item) in chosen or id(item) not in undecided]
    raise AssertionError


def costly_functions() -> frozenset[str]:
    """Return the names of the test functions that are costly, without parameters."""
    lines = COSTLY.read_text(encoding="utf-8").splitlines()
    return frozenset(line.split()[0] for line in lines if not line.startswith("#"))


def left_out_of_quick_runs(names: Sequence[str], seed: int) -> set[str]:
    """Return the costly tests that a quick run leaves out.

    It keeps one in five of each file, rounded up, and different functions rather than several cases of one.

    Args:
        names: The names of all tests, with parameters.
        seed: The seed of the run.
    """
    costly = costly_functions()
    files: dict[str, dict[str, list[str]]] = {}
    for name in sorted(names, key=lambda name: _chance("costly", seed, name)):
        function = name.partition("[")[0]
        if function in costly:
            files.setdefault(function.partition("::")[0], {}).setdefault(function, []).append(name)
    left_out: set[str] = set()
    for functions in files.values():
        dealt = [name for cases in zip_longest(*functions.values()) for name in cases if name is not None]
        left_out.update(dealt[-(-len(dealt) // _COSTLY_SHARE) :])
    return left_out


def is_drawn(item: pytest.Item) -> bool:
    """Return whether a test depends on the seed."""
    made_by_chance = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
    return bool(made_by_chance or item.get_closest_marker(MARK) or "seed" in getattr(item, "fixturenames", ()))


def command(item: pytest.Item, seed: int) -> str:
    """Return the command that repeats a test with the seed of this run."""
    return f"python -m pytest --seed={seed} {shlex.quote(item.nodeid)}"


def _chosen(members: Sequence[Call], case: Hashable, step: int, seed: int) -> list[Call]:
    """Return the drawn tests of one case (Efraimidis and Spirakis, "Weighted random sampling", 2006)."""
    name, of_each, weights, _ = list(members[0].iter_markers(MARK))[step].args
    likely = {_word(item, name): weights.get(_parameters(item)[name], 1.0) for item in members}
    places = {word: _chance(seed, case, name, word) ** (1 / weight) for word, weight in likely.items()}
    words = sorted(places, key=places.__getitem__, reverse=True)[:of_each]
    return [item for item in members if _word(item, name) in words]


def _case(item: Call, undecided: Sequence[pytest.Mark]) -> Hashable:
    """Return the key of a case: the test, its decided parameters, and the group of the next value."""
    test, names = item.nodeid.partition("[")[0], [mark.args[0] for mark in undecided]
    decided = ((name, _word(item, name)) for name in _parameters(item) if name not in names)
    name, *_, groups = undecided[0].args
    value = _parameters(item)[name]
    return test, *decided, *(() if groups is None else (("group", groups.get(value, ("alone", value))),))


def _parameters(item: Call) -> Mapping[str, Any]:
    return item.callspec.params


def _word(item: Call, name: str) -> str:
    """Return a value of a parameter, or its position among the values, as a string that is the same in every process."""
    value = _parameters(item)[name]
    if value is None or isinstance(value, (str, int, float)):
        return str(value)
    return getattr(value, "__name__", None) or str(item.callspec.indices[name])


def _chance(*key: object) -> float:
    """Return a pseudo-random number between 0 and 1, the same for a key in every process."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:6]) / 2**48
