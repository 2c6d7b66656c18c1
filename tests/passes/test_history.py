"""The changes of each pass, as listings and as files."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlx
from rlx.ir.graph.listing import inspect_graph
from rlx.passes.history import History
from tests.models.tiny_bert import encoder

HOSTILE = "../../\x1b[2Ja b"


def test_records_hang_together() -> None:
    graph, history = encoder(), History()
    after = rlx.passes.run(graph, "rlx-lower-blocks,canonicalize,rlx-fuse", instruments=[history])
    assert [r.name for r in history.records] == ["rlx-lower-blocks", "canonicalize", "rlx-fuse"]
    assert [r.changed for r in history.records] == [True, False, True]
    assert history.records[0].before == inspect_graph(graph) and history.records[-1].after == inspect_graph(after)
    for first, second in zip(history.records, history.records[1:], strict=False):
        assert first.after is second.before
    assert history.records[0].diff().removed >= 2 and not history.records[1].diff().hunks()


def test_the_history_of_a_compilation_names_all_its_passes() -> None:
    result = rlx.Pipeline(precision="bf16").compile(encoder())
    history = result.history
    assert history.last == inspect_graph(result.lir) and history.given == inspect_graph(result.hir)
    assert [r.text for r in history.records if r.changed] and all(
        r.text in result.pipeline_text for r in history.records[:3]
    )
    assert f"passes: {len(history.records)} in " in str(history) and "rlx-fuse{target=cpu}" in str(history)


def test_the_history_of_passes_that_fail_ends_there() -> None:
    g = rlx.Graph("g")
    g.set_outputs([rlx.ops.tanh(g.input("x", (2,), rlx.f64))])
    result = rlx.Pipeline(target="vulkan").compile(g)
    assert "f64" in result.history.problem and result.history.problem in str(result.history)
    with pytest.raises(rlx.UnsupportedError):
        _ = result.lir


def test_modules_are_written_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_IR_DUMP", str(tmp_path / "ir"))
    graph = rlx.Graph("layer")
    x, w = graph.input("x", (4, 4)), graph.param("w", (4, 4))
    graph.set_outputs([rlx.ops.relu(x @ w + graph.param("b", (4,)))])
    for _ in range(2):  # the second comes from the cache, and is written too
        rlx.Session("cpu").compile(graph, cache=tmp_path / "cache")
    folders = sorted(p.name for p in (tmp_path / "ir").iterdir())
    assert folders == ["layer", "layer-2"]
    files = {folder: sorted(p.name for p in (tmp_path / "ir" / folder).iterdir()) for folder in folders}
    assert files[folders[0]] == files[folders[1]]
    assert files[folders[0]][0] == "00-given.mlir" and any("rlx-fuse" in f for f in files[folders[0]])
    assert "rlx-iree-" in files[folders[0]][-1]  # the lowering follows
    (name,) = (f for f in files[folders[0]] if "rlx-check-lir" in f)
    last = tmp_path / "ir" / folders[0] / name
    assert str(rlx.parse(last.read_text())) == str(rlx.Pipeline().compile(graph).lir)


def test_names_and_folders_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    g = rlx.Graph(HOSTILE)
    g.set_outputs([rlx.ops.tanh(g.input("x", (2,)))])
    monkeypatch.setenv("RLX_IR_DUMP", str(tmp_path / "ir"))
    _ = rlx.Pipeline().compile(g)
    (folder,) = (tmp_path / "ir").iterdir()
    assert folder.name.isascii() and folder.name.isprintable() and "/" not in folder.name
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLX_IR_DUMP", str(tmp_path / "file"))
    with pytest.raises(rlx.Error, match="RLX_IR_DUMP"):
        rlx.Pipeline().compile(g)
