"""Every name in the installed NumPy, JAX and PyTorch exists in RLX, or its error names the RLX call."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.answers.calls import keywords
from rlx.answers.modules import counterparts
from rlx.answers.names import calls
from rlx.answers.reader import table
from rlx.ir.calls import CallError
from tests.ops.peer_names import SPACES, WITHOUT_MEANING, names_of, owner_of
from tests.ops.test_calls_as_typed import answer_in

OBJECTS = ("modules", "functions", "optimisers", "steps", "sessions", "parameters")
TABLES: dict[str, Mapping[str, str]] = {
    "calls": calls(),
    "within": table("within"),
    "graphs": table("tensors/graphs"),
    **{name: table(f"attributes/{name}") for name in OBJECTS},
    **{f"rlx.{name}": answers for name, answers in counterparts().items()},
    "keywords": keywords(),
}
# The percentage of names that may have no answer: a new release of a peer has new names.
_NEW = 2
# Placeholders for the user's objects in answers, and names of other packages.
_SAID = {"grad", "value_and_grad", "graph_for", "compiled_for", "clear_cache", "size_bytes", "jax"}


@pytest.mark.parametrize("space", SPACES)
def test_a_name_of_a_peer_is_there_or_answered(space: str) -> None:
    owner, known, missing = owner_of(space), re.compile("|".join(WITHOUT_MEANING)), []
    names = {name: home for home, name in names_of(space)}
    for name, home in names.items():
        try:
            getattr(owner, name)
        except AttributeError as problem:
            if "; instead: " not in str(problem) and not known.fullmatch(name):
                missing.append(f"{home}.{name}: {problem}")
        except rlx.Error:
            pass
    assert 100 * len(missing) <= _NEW * len(names), "\n".join(missing)


@pytest.mark.parametrize("name", TABLES)
def test_an_answer_names_calls_that_exist(name: str) -> None:
    g: Any = rlx.Graph()
    x = g.input("x", (3, 2))
    step = rlx.train.TrainStep
    for said, call in TABLES[name].items():
        for path in re.findall(r"\brlx\.[\w.]+\w", call):
            owner: Any = rlx
            for part in path.split(".")[1:]:
                assert hasattr(owner, part), f"{said}: {call}"
                owner = getattr(owner, part)
        for used in re.findall(r"(?<![\w.])g\.(\w+)", call):
            assert hasattr(g, used), f"{said}: {call}"
        for used in re.findall(r"(?<![\w.])x\.(\w+)", call):
            assert hasattr(x, used) or used in _SAID, f"{said}: {call}"
        for used in re.findall(r"(?<![\w.])step\.(\w+)", call):
            assert hasattr(step, used), f"{said}: {call}"


def _constructors() -> Iterator[tuple[str, Any, Any]]:
    """Yield classes and functions with the same name in RLX and in a peer."""
    for ours, homes in (
        (rlx.nn, ("torch.nn", "flax.nnx", "equinox.nn")),
        (rlx.nn.init, ("jax.nn.initializers",)),
        (rlx.train, ("torch.optim", "optax")),
        (rlx, ("jax",)),
    ):
        for home in homes:
            try:
                module = importlib.import_module(home)
            except ImportError:
                continue
            for name in dir(ours):
                peer = getattr(module, name.lower() if home == "optax" else name, None)
                if not name.startswith("_") and callable(peer) and callable(getattr(ours, name)):
                    yield f"{home}.{name}", getattr(ours, name), peer


def test_an_option_of_a_peer_is_taken_or_answered() -> None:
    asked, missing = 0, []
    for name, ours, peer in _constructors():
        try:
            listed = inspect.signature(peer.__init__ if isinstance(peer, type) else peer).parameters.values()
        except (TypeError, ValueError):
            continue
        for option in listed:
            if option.name in ("self", "d") or option.kind in (option.VAR_KEYWORD, option.VAR_POSITIONAL):
                continue
            asked += 1
            try:
                ours(**{option.name: 1})
            except CallError as problem:
                if not answer_in(str(problem)):
                    missing.append(f"{name}: {problem}")
            except (rlx.Error, TypeError, ValueError, AttributeError):
                pass  # 1 is not a valid value of the option
    assert 100 * len(missing) <= _NEW * asked, "\n".join(missing)
    assert asked >= 100


def _expression(call: str) -> tuple[str, list[str]] | None:
    """Return an answer that is an expression of tensors `x`, or `a` and `b`, and its tensors."""
    text = call.split(": ")[0].split(", ")[0] if call.count("(") == call.split(", ")[0].count("(") else call
    try:
        names = {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)}
    except SyntaxError:
        return None
    tensors = sorted(names - {"g", "np"})
    return (text, tensors) if tensors in (["x"], ["a"], ["a", "b"], ["x", "y"]) and "…" not in text else None


def _function(name: str) -> Any:
    homes = ("scipy.special", "numpy", "torch", "torch.nn.functional", "torch.special", "jax.nn")
    for home in homes:
        try:
            with warnings.catch_warnings(action="ignore"):  # deprecated names
                found = getattr(importlib.import_module(home), name, None)
        except ImportError:
            continue
        if callable(found) and not isinstance(found, type):
            return home, found
    return None


# Answers with other results: positions, shapes, one of several results, or a limitation that the call states.
_OF_OTHER_NUMBERS = {"mode", "rrelu", "atleast_1d", "atleast_2d", "atleast_3d", "logdet"}


def test_answers_compute_what_the_peers_compute() -> None:
    rng = np.random.default_rng(0)
    compared: list[str] = []
    wrong: list[str] = []
    arrays = {n: rng.uniform(0.2, 0.9, (4, 4)).astype(np.float32) for n in ("x", "y", "a", "b")}
    for name, call in calls().items():
        expression, peer = _expression(call), _function(name)
        if expression is None or peer is None or name in _OF_OTHER_NUMBERS:
            continue
        text, tensors = expression
        given = [arrays[t] for t in tensors]
        try:
            if peer[0].startswith("torch"):
                torch: Any = importlib.import_module("torch")
                given = [torch.from_numpy(array) for array in given]
            wanted = np.asarray(peer[1](*given))
        except Exception:  # it takes other arguments
            continue
        g: Any = rlx.Graph()
        result = eval(text, {"g": g, "np": np, "rlx": rlx, **{t: g.input(t, arrays[t].shape) for t in tensors}})
        if not isinstance(result, rlx.Tensor) or wanted.dtype.kind not in "fibc":
            continue
        g.set_outputs([result])
        (found,) = rlx.evaluate(g, {t: arrays[t] for t in tensors})
        compared.append(name)
        if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=2e-4, atol=2e-5):
            wrong.append(f"{name}: {call}")
    assert not wrong, "\n".join(wrong)
    assert len(compared) >= (35 if importlib.util.find_spec("torch") else 25), compared
