"""The cache of XLA's executables: what is loaded from it, and what is compiled again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.cache import DiskCache
from rlx.targets.xla import client, executables, soundness
from rlx.targets.xla.executables import StoredExecutable

X, W = np.arange(6, dtype=np.float32).reshape(2, 3), np.eye(3, dtype=np.float32)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The programs that XLA compiles."""
    programs: list[bytes] = []
    compile_and_load = client._compile_and_load

    def recorded(program: bytes, options: Any) -> Any:
        programs.append(program)
        return compile_and_load(program, options)

    client._sound_options()
    client.slot.cache_clear()
    monkeypatch.setattr(client, "_compile_and_load", recorded)
    yield programs
    client.slot.cache_clear()


def _graph(symbol: bool = False) -> rlx.Graph:
    """A graph with a part that computes weights when the program is loaded."""
    g = rlx.Graph("cached")
    x, w = g.input("x", ("n" if symbol else 2, 3)), g.param("w", (3, 3))
    g.set_outputs([g.cumsum(x @ g.exp(w), 1), g.topk(x, 2)[0]])
    return g


def _run(cache: Any, *, symbol: bool = False, **options: Any) -> None:
    """Compile and run as in a new process, and check the results."""
    client.slot.cache_clear()
    program = rlx.Session("xla", **options).compile(_graph(symbol), params={"w": W}, cache=cache)
    for result, expected in zip(program.run({"x": X}), rlx.evaluate(_graph(symbol), {"x": X, "w": W}), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("symbol", [False, True])
def test_a_program_is_compiled_once(symbol: bool, compilations: list[bytes], tmp_path: Path) -> None:
    _run(tmp_path, symbol=symbol)
    assert len(compilations) == 2  # the weights and the rest
    _run(tmp_path, symbol=symbol)
    assert len(compilations) == 2
    _run(False, symbol=symbol)
    assert len(compilations) == 4


def test_without_a_cache_nothing_is_written(compilations: list[bytes], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    _run(False)
    assert compilations and not list(tmp_path.rglob("*"))


def test_damaged_entries_are_compiled_again(compilations: list[bytes], tmp_path: Path) -> None:
    _run(tmp_path)
    entries = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in entries:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    _run(tmp_path)
    assert len(compilations) == 4


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x00" * 1000])
def test_entries_that_are_no_executables_are_compiled_again(
    content: bytes, compilations: list[bytes], tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(StoredExecutable, "read", lambda self: content)
    with caplog.at_level(logging.INFO, "rlx"):
        _run(tmp_path)
    assert len(compilations) == 2 and "cannot load an executable" in caplog.text


def test_executables_that_cannot_be_stored(compilations: list[bytes], tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("no folder")
    _run(folder)
    assert len(compilations) == 2


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key has everything that the code depends on."""

    def key(program: bytes = b"program", **options: bool) -> str:
        return StoredExecutable(DiskCache(tmp_path), program, tuple(options.items()))._key

    keys = [key(), key(b"other"), key(xla_cpu_enable_fast_math=True), key(xla_cpu_enable_fast_math=False)]
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2")
    keys.append(key())
    monkeypatch.setenv("NPROC", "3")
    keys.append(key())
    for module, name, value in (
        (executables, "host_features", "another CPU"),
        (executables, "usable_cpus", 1000),
        (soundness, "version", "0.0.1"),
    ):
        monkeypatch.setattr(module, name, lambda value=value: value)
        keys.append(key())
    assert len(set(keys)) == len(keys)
    assert key(a=True, b=False) == key(b=False, a=True)


def test_threads_have_their_own_executables(compilations: list[bytes], tmp_path: Path) -> None:
    _run(tmp_path)
    _run(tmp_path, threads=1)
    assert len(compilations) == 4
    _run(tmp_path, threads=1)
    assert len(compilations) == 4
