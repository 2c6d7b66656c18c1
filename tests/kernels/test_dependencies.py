"""The program of the cache is that of the kernels as they are now: their sources, and the values that they read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.op.dependencies import values_from_outside
from rlx.kernels import registry
from rlx.kernels.buffer import Buffer
from rlx.kernels.kernel import Kernel

this = sys.modules[__name__]


class Scaled(rlx.CustomOp, name="dependencies.scaled"):
    """An op whose kernel reads a global."""

    def infer(self, x: rlx.Shape) -> rlx.Shape:
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x


SCALE: Any = 2.0


def _scaled(v: Any) -> Any:
    return v * SCALE


@rlx.kernel(Scaled, name="dependencies_global", pays=lambda case: SCALE is not None)
def global_number(k: Kernel, x: Buffer, y: Buffer) -> None:
    """A kernel that reads a global, through a function."""
    for c in k.vectors(x.shape[0]):
        y[c] = _scaled(x[c])


def test_globals_select_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x = np.arange(5, dtype=np.float32)
    g = rlx.Graph("globals")
    g.set_outputs([g.custom(Scaled, g.input("x", (5,)))])
    for factor in (2.0, 3.0, np.float32(4.0), 2.0):
        monkeypatch.setitem(globals(), "SCALE", factor)
        program = rlx.Session("cpu").compile(g, cache=tmp_path)
        np.testing.assert_array_equal(program.run({"x": x})[0], x * np.float32(factor))
        entries = len(list(tmp_path.glob("*/*.rlxc")))
        rlx.Session("cpu").compile(g, cache=tmp_path)
        assert len(list(tmp_path.glob("*/*.rlxc"))) == entries


class _Settings:
    factor = 2.0


@pytest.mark.parametrize("value", [sys.modules[__name__], object(), np.random.default_rng(0), iter([1])])
def test_objects_whose_changes_cannot_be_seen_are_unknown(value: Any) -> None:
    def reads() -> Any:
        return value

    assert values_from_outside(reads) is None


_SETTINGS = _Settings()


def _reads_attributes() -> Any:
    return _SETTINGS.factor * _Settings.factor * this.SCALE


def test_attributes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [values_from_outside(_reads_attributes)]
    for target, name in ((_SETTINGS, "factor"), (_Settings, "factor"), (this, "SCALE")):
        monkeypatch.setattr(target, name, 7.0)
        texts.append(values_from_outside(_reads_attributes))
    assert None not in texts and len(set(texts)) == 4


class Shifted(rlx.CustomOp, name="dependencies.shifted"):
    """An op whose decomposition reads a global."""

    def infer(self, x: rlx.Shape) -> rlx.Shape:
        return x

    def decompose(self, b: Any, x: Any) -> Any:
        return x + SCALE


def test_globals_of_decompositions_select_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x = np.arange(5, dtype=np.float32)
    g = rlx.Graph("shifted")
    g.set_outputs([g.custom(Shifted, g.input("x", (5,)))])
    for shift in (2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "SCALE", shift)
        program = rlx.Session("cpu").compile(g, cache=tmp_path)
        np.testing.assert_array_equal(program.run({"x": x})[0], x + np.float32(shift))
    assert len([p for p in tmp_path.glob("*/*.rlxc") if b"func @shifted" in p.read_bytes()]) == 2


@pytest.mark.parametrize("value", [1.5, "a", (1, [2, {"a": {1}}]), np.arange(3), rlx.f32, np, _scaled, np.float32(1)])
def test_plain_values_are_known(value: Any) -> None:
    def reads() -> Any:
        return value

    assert values_from_outside(reads)


def test_kernels_of_later_ops_select_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A decomposition makes an op that has a user's kernel, and that the graph does not have."""
    g = rlx.Graph("attention")
    shape = (1, 1, 4, 8)
    q = g.input("q", shape)
    g.set_outputs([g.attention(q, q, q, num_heads=1, head_dim=8, softcap=5.0)])
    values = {"q": np.linspace(-1, 1, 32, dtype=np.float32).reshape(shape)}
    (usual,) = rlx.Session("cpu").compile(g, cache=tmp_path).run(values)
    monkeypatch.setattr(registry, "_kernels", dict(registry.load()))

    @rlx.kernel("softmax", name="dependencies_softmax")
    def zeros(k: Kernel, x: Buffer, y: Buffer, *, axis: int) -> None:
        rows = y.rows()
        for i in k.parallel(rows.shape[0]):
            for c in k.vectors(rows.shape[1]):
                rows[i, c] = 0.0

    (other,) = rlx.Session("cpu").compile(g, cache=tmp_path).run(values)
    assert np.abs(usual).max() > 0 and not other.any()


def test_sources_are_those_of_the_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that is edited after its import does not become the source of the code that runs."""
    (tmp_path / "edited_kernel.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_kernels", {})  # those of other tests may have unknown values
    module = __import__("edited_kernel")
    texts = list(module.edited.texts)
    (tmp_path / "edited_kernel.py").write_text(_MODULE.replace("2.0", "3.0"))
    g = rlx.Graph("edited")
    g.set_outputs([g.custom(Scaled, g.input("x", (5,)))])
    sources = registry.own_sources(g.module)
    assert sources is not None and set(texts) <= set(sources) and None not in texts


_MODULE = """
import rlx
from tests.kernels.test_dependencies import Scaled

@rlx.kernel(Scaled, name="dependencies_edited", pays=lambda case: False)
def edited(k, x, y):
    for c in k.vectors(x.shape[0]):
        y[c] = x[c] * 2.0
"""
