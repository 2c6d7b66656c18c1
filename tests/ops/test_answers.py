"""Answers in error messages: calls with RLX's names, names in modules of other libraries, results of suggested calls."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.answers.names import calls
from rlx.answers.reader import table
from rlx.ir.op import registry
from tests.ops.references import random

RLX: Any = rlx
M, V, SQUARE = random("f32", (3, 4)), random("f32", (4,)), random("f32", (3, 3))


def _said(call: Callable[[Any, Any], Any]) -> str:
    g: Any = rlx.Graph()
    with pytest.raises((rlx.Error, AttributeError)) as caught:
        call(g, g.input("m", (3, 4)))
    return str(caught.value)


@pytest.mark.parametrize(
    ("call", "corrected"),
    [
        (lambda g, m: g.sum(m, dim=1), "instead: g.sum(x, axis=1)"),
        (lambda g, m: m.sum(dim=(0, 1), keepdim=True), "instead: g.sum(x, axis=(0, 1), keep_dims=True)"),
        (lambda g, m: m.argmax(dim=1, keepdim=True), "instead: g.argmax(x, axis=1, keep_dims=True)"),
        (lambda g, m: m.std(dim=0), "instead: g.std(x, ddof=1, axis=0)"),
        (lambda g, m: m.var(dim=0, unbiased=False), "instead: g.var(x, ddof=0, axis=0)"),
        (lambda g, m: m.std(axis=0, correction=1), "instead: g.std(x, axis=0, ddof=1)"),
        (lambda g, m: m.norm(p=2, dim=-1, keepdim=True), "instead: g.norm(x, ord=2, axis=-1, keepdims=True)"),
        (lambda g, m: g.topk(m, 3, dim=-1, sorted=True), "'sorted': leave it out: g.topk(x, k) sorts"),
        (lambda g, m: g.topk(m, 3, dim=-1, sorted=True), "instead: g.topk(x, 3, axis=-1)"),
        (lambda g, m: m.max(dim=1), "instead: g.max(x, axis=1); the values alone"),
        (lambda g, m: m.clamp(min=0.0, max=1.0), "instead: g.clamp(x, low=0.0, high=1.0)"),
        (lambda g, m: g.searchsorted(m[0], m[1], right=True), "instead: g.searchsorted(x, v, side='right')"),
        (
            lambda g, m: RLX.train.AdamW(["w"], lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1),
            "instead: rlx.train.AdamW(learning_rate=0.0006, b1=0.9, b2=0.95, weight_decay=0.1)",
        ),
        (lambda g, m: m.at[0].add(value=1.0), "instead: x.at[index].add(values=1.0)"),
        (lambda g, m: m[:, 0].repeat(3, 1), "g.tile(x, (2, 1)) is PyTorch's"),
    ],
)
def test_the_corrected_call_is_said(call: Callable[[Any, Any], Any], corrected: str) -> None:
    assert corrected in _said(call)


def test_every_wrong_keyword_is_named() -> None:
    said = _said(lambda g, m: m.std(dim=0, unbiased=False, keepdim=True))
    assert all(f"'{wrong}' (did you mean '{right}'?)" in said for wrong, right in
               (("dim", "axis"), ("unbiased", "ddof"), ("keepdim", "keepdims")))  # fmt: skip


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda g, m: g.lax.rsqrt(m), "g.rsqrt(x)"),
        (lambda g, m: g.lax.max(m, m), "g.maximum(a, b)"),
        (lambda g, m: g.scipy.special.gammaln(m), "g.lgamma(…)"),
        (lambda g, m: g.scipy.stats.norm.logpdf(m), table("within")["norm.logpdf"]),
        (lambda g, m: g.random.normal(size=(3,)), "g.rng_normal(shape"),
        (lambda g, m: RLX.random.split(RLX.random.key(0)), "seeds are integers"),
        (lambda g, m: RLX.nn.functional.glu(m, dim=-1), "rlx.ops.glu(x, axis=-1)"),
        (lambda g, m: RLX.nn.functional.interpolate(m), "rlx.ops.interpolate(x, "),
        (lambda g, m: RLX.nn.utils.clip_grad_norm_(m), "rlx.train.TrainStep(…, clip_norm=1.0)"),
        (lambda g, m: RLX.nn.initializers.he_normal(), "rlx.nn.init.he_normal"),
        (lambda g, m: RLX.optim.AdamW(m), "rlx.train.AdamW"),
        (lambda g, m: RLX.nn.gelu(m), "rlx.ops.gelu(x)"),
        (lambda g, m: g.nn.Linear(3, 4), "rlx.nn.Linear"),
        (lambda g, m: g.lax, "the functions of jax.lax"),
        (lambda g, m: getattr(g, "lax"), "the functions of jax.lax"),  # noqa: B009
    ],
)
def test_what_is_asked_of_a_module_is_answered(call: Callable[[Any, Any], Any], answer: str) -> None:
    assert f"instead: {answer}" in _said(call)


def test_an_import_is_answered() -> None:
    for line, answer in (
        ("from rlx.nn import functional as F", "import rlx.ops as F"),
        ("from rlx import random", "rlx.ops.rng_normal"),
        ("from rlx.train import adam", "rlx.train.Adam(1e-3)"),
    ):
        with pytest.raises(ImportError, match=f"instead: .*{re.escape(answer)}"):
            exec(line, {})


def test_results_have_names_and_are_tuples() -> None:
    g: Any = rlx.Graph()
    m = g.input("m", (3, 4))
    named = {name: card.named for name, card in registry.registered().items() if card.named is not None}
    assert set(named) >= {"topk", "svd", "qr", "eigh"}
    for name, kind in named.items():
        parts = getattr(g, name)(m @ m.T, 2) if name == "topk" else getattr(g, name)(m @ m.T)
        assert type(parts) is kind and isinstance(parts, tuple)
    sign, logabsdet = g.slogdet(m @ m.T)
    assert sign.shape == logabsdet.shape and g.slogdet(m @ m.T)._fields == ("sign", "logabsdet")
    with rlx.eager():
        found = rlx.ops.svd(rlx.ops.constant(M), full_matrices=False)
    np.testing.assert_allclose(np.asarray((found.U * found.S) @ found.Vh), M, rtol=1e-4, atol=1e-5)


def test_names_of_parameters_are_answered() -> None:
    declared = RLX.nn.Linear(4, 5).parameters()
    asks: tuple[Callable[[Any], Any], ...] = (
        lambda p: p.requires_grad,
        lambda p: p.numel(),
        lambda p: setattr(p, "grad", None),
    )
    for ask in asks:
        with pytest.raises(AttributeError, match=r"name of a parameter.*instead: .*parameters\(\)\.items\(\)"):
            ask(next(iter(declared)))
    assert declared["weight"].shape.static == (5, 4) and list(declared) == ["weight", "bias"]
    with pytest.raises(AttributeError, match=r"instead: math\.prod\(parameter\.shape\.static\)"):
        _ = declared["weight"].numel
    with pytest.raises(rlx.Error, match=r"(?s)declared by its shape.*hint: rlx\.nn\.Parameter\(\(3, 4\)"):
        RLX.nn.Parameter(M)


# A name, values for the user's names in its answer, and the peer's computation.
FORMULAS: list[tuple[str, dict[str, Any], Callable[[], Any]]] = [
    ("indices", {"shape": (3, 4)}, lambda: np.indices((3, 4))),
    ("hamming", {"n": 9}, lambda: np.hamming(9)),
    ("blackman_window", {"n": 8}, lambda: np.blackman(9)[:-1]),
    ("vander", {"x": V, "n": 3}, lambda: np.vander(V, 3)),
    ("gradient", {"x": V, "dx": 0.1}, lambda: np.gradient(V, 0.1)),
    ("trapezoid", {"y": M, "dx": 0.5}, lambda: np.trapezoid(M, dx=0.5)),
    ("cumulative_trapezoid", {"y": M, "dx": 0.5}, lambda: np.cumsum((M[:, 1:] + M[:, :-1]) / 4, 1)),
    ("polyval", {"x": V, "coefficients": [1.0, -2.0, 0.5], "n": 3}, lambda: np.polyval([1.0, -2.0, 0.5], V)),
    ("convolve", {"x": V, "w": [0.2, 0.5, 0.3], "n": 3}, lambda: np.convolve(V, [0.2, 0.5, 0.3])),
    ("block", {"rows": [[M, M], [M, M]]}, lambda: np.block([[M, M], [M, M]])),
    ("append", {"x": V, "values": V, "…": 0}, lambda: np.append(V, V)),
    ("segment_max", {"data": M, "segment_ids": np.array([0, 2, 2]), "num_segments": 3},
     lambda: np.stack([M[0], np.full(4, -np.inf), M[1:].max(0)])),
    ("fori_loop", {"body": lambda i, c: c * 0.5 + i, "init": V, "start": 0, "stop": 3}, lambda: V / 8 + 2.5),
    ("switch", {"i": np.array(1), "f0": lambda a: a, "f1": lambda a: a * 2, "f2": lambda a: -a, "args": [V]}, lambda: V * 2),
    ("norm.logpdf", {"x": V, "mean": 0.5, "std": 2.0},
     lambda: -(((V - 0.5) / 2) ** 2) / 2 - math.log(2.0 * math.sqrt(2 * math.pi))),
    ("norm.cdf", {"x": V, "mean": 0.5, "std": 2.0}, lambda: [(1 + math.erf((v - 0.5) / 8**0.5)) / 2 for v in V.tolist()]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "peer"), FORMULAS)
def test_a_formula_gives_the_numbers_of_the_peer(name: str, given: dict[str, Any], peer: Callable[[], Any]) -> None:
    """The first expression of an answer is evaluated with the user's values in place of its names."""
    call = re.split(r", (?:with|of|for|and|whose|as) |: cond|; ", (calls() | table("within"))[name])[0]
    for n, value in given.items():
        call = call.replace(n, repr(value)) if n == "…" else call
    with rlx.eager():
        lift = lambda v: rlx.ops.constant(v) if isinstance(v, np.ndarray) else v  # noqa: E731
        names = {n: [lift(r) if not isinstance(r, list) else list(map(lift, r)) for r in v]
                 if isinstance(v, list) and n in ("rows", "args") else lift(v) for n, v in given.items()}  # fmt: skip
        found = eval(call, {"g": rlx.ops, "np": np, "rlx": rlx, **names})
    np.testing.assert_allclose(np.asarray(found), peer(), rtol=1e-4, atol=1e-5)
