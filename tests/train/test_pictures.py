"""Pictures of a training, and the progress bar."""

from __future__ import annotations

import importlib.util
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import rlx
from rlx.report.progress import quiet, waiting
from rlx.train import ConfusionMatrix, TrainingHistory
from rlx.train.curves_svg import ticks
from rlx.train.progress_bar import ProgressBar

HISTORY = TrainingHistory(
    [
        {
            "epoch": n,
            "step": 5 * n,
            "loss": 1 / n,
            "f1": n / 9,
            "val_loss": 1.5 / n,
            "learning_rate": 0.1,
            "seconds": 1.0,
        }
        for n in range(1, 9)
    ]
)
SVG = "{http://www.w3.org/2000/svg}"


def lines_of(svg: str) -> list[list[tuple[float, float]]]:
    """Return the points of each line of a drawing."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    return [[(float(x), float(y)) for x, y in (p.split(",") for p in e.attrib["points"].split())] for e in found]


def test_curves_have_the_values_at_their_places() -> None:
    drawn = lines_of(HISTORY.svg())
    assert len(drawn) == 3  # loss, val_loss, f1
    (loss, validation, f1) = drawn
    (x0, y0), (_, y1) = loss[0], loss[-1]
    scale = (y1 - y0) / (1 / 8 - 1)
    for n, ((x, y), (_, other)) in enumerate(zip(loss, validation, strict=True), 1):
        assert x == pytest.approx(x0 + (n - 1) * (loss[-1][0] - x0) / 7, abs=0.11)
        assert y == pytest.approx(y0 + scale * (1 / n - 1), abs=0.11)
        assert other == pytest.approx(y0 + scale * (1.5 / n - 1), abs=0.11)
    assert scale < 0 and f1[0][1] > f1[-1][1]  # larger values are above
    html = HISTORY._repr_html_()
    assert html is not None and html.count("<svg") == 2 and TrainingHistory()._repr_html_() is None


def test_values_that_are_not_finite_are_gaps() -> None:
    values = [1.0, 2.0, float("nan"), 3.0, 4.0, float("inf")]
    history = TrainingHistory([{"step": i, "loss": v} for i, v in enumerate(values)])
    assert [len(line) for line in lines_of(history.svg())] == [2, 2]
    ElementTree.fromstring(TrainingHistory([{"step": 1, "loss": float("nan")}]).svg())


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.2, 7.7), (1e-9, 2e-9), (5.0, 5.0), (0.0, 0.0), (1e8, 1e9)])
def test_ticks_enclose_the_values(low: float, high: float) -> None:
    found = ticks(low, high, 4)
    assert found[0] <= low and found[-1] >= high and 2 <= len(found) <= 7
    np.testing.assert_allclose(np.diff(found), found[1] - found[0], rtol=1e-6)


def test_plots_of_matplotlib(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = HISTORY.plot(path=tmp_path / "curves.png")
    titles = [axes.get_title() for axes in figure.axes if axes.get_visible()]
    assert titles == ["loss", "f1"] and (tmp_path / "curves.png").stat().st_size > 1000
    (loss, validation) = figure.axes[0].get_lines()
    assert list(loss.get_ydata()) == HISTORY["loss"] and list(validation.get_ydata()) == HISTORY["val_loss"]
    assert [axes.get_title() for axes in HISTORY.plot(["f1"]).axes] == ["f1"]
    matrix = ConfusionMatrix(np.array([[3, 1], [0, 4]]), ["cat", "dog"])
    assert "accuracy 87.5%" in matrix.plot(path=tmp_path / "m.svg").axes[0].get_title()
    with pytest.raises(rlx.Error, match=r"no 'lss' \(did you mean 'loss'\?\); it has loss, f1"):
        HISTORY.plot(["lss"])
    with pytest.raises(rlx.Error, match="cannot write the picture"):
        HISTORY.plot(path=tmp_path / "none" / "curves.png")
    with pytest.raises(rlx.Error, match="no entry to draw"):
        TrainingHistory().plot()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(rlx.Error, match=r"history.plot\(\) needs the package 'matplotlib'") as caught:
        HISTORY.plot()
    assert caught.value.hint == "pip install 'rlx[plot]'"


def test_confusion_matrices() -> None:
    matrix = ConfusionMatrix(np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]]), ["a<b", "dog", "x" * 60])
    root = ElementTree.fromstring(matrix.svg())
    texts = [e.text for e in root.iter(f"{SVG}text")]
    assert [t for t in texts if t and t.isdigit()] == ["3", "1", "0", "0", "4", "0", "0", "0", "0"]
    assert "a<b" in texts and "x" * 60 not in texts
    opacities = [float(e.attrib["fill-opacity"]) for e in root.iter(f"{SVG}rect") if "fill-opacity" in e.attrib]
    assert opacities == [0.75, 0.25, 0, 0, 1, 0, 0, 0, 0]
    lines = str(matrix).splitlines()
    assert len(lines) == 5 and len({line.index("|") for line in lines[1:]}) == 1
    for counts, names in ((np.zeros((2, 3)), None), (np.zeros((2, 2)), ["one"]), (np.zeros((0, 0)), None)):
        with pytest.raises(rlx.Error, match=r"counts must be|names has 1 names for 2 classes"):
            ConfusionMatrix(counts, names)


def test_a_matrix_is_narrow_and_follows_the_colour_scheme() -> None:
    """On a screen of 400 pixels, the text has its own size. Text on strong colours is white in both schemes."""
    counts = np.full((10, 10), 3) + np.diag([150] * 10)
    for names, width in ((["a long name of a class"] * 10, 430), (None, 400 - 16)):
        svg = ConfusionMatrix(counts, names).svg()
        assert float(ElementTree.fromstring(svg).attrib["width"]) <= width
    assert "prefers-color-scheme: dark" in svg and "prefers-color-scheme: dark" in HISTORY.svg()
    root = ElementTree.fromstring(svg)
    assert [e.attrib["class"] for e in root.iter(f"{SVG}rect") if "class" in e.attrib] == ["paper"]
    strong = [e.attrib.get("fill") for e in root.iter(f"{SVG}text") if e.text == "153"]
    assert strong == ["white"] * 10  # not a colour that a dark scheme replaces
    html = ConfusionMatrix(np.full((24, 24), 1000))._repr_html_()
    assert "overflow-x:auto" in html and "max-width:none" in html and "paper" not in html


def test_pooled_labels_are_named() -> None:
    model = rlx.nn.Linear(4, 3)
    x = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    options: Any = {"loss": "binary_cross_entropy", "progress": False, "device": "xla"}
    matrix = rlx.train.fit(model, (x, (x[:, :3] > 0).astype(np.float32)), **options).confusion_matrix((x, x[:, :3] > 0))
    said = "the 3 labels of each sample are pooled"
    assert matrix.pooled == 3 and matrix.counts.sum() == 60
    texts = [e.text for e in ElementTree.fromstring(matrix.svg()).iter() if e.text]
    assert said in texts and "  of 60 labels" in texts
    assert said in str(matrix).splitlines()[0] and repr(matrix) == "<ConfusionMatrix of 2 classes, 60 labels>"
    if importlib.util.find_spec("matplotlib") is not None:
        assert said in matrix.plot().axes[0].get_title()
    one = rlx.train.fit(rlx.nn.Linear(4, 1), (x, (x[:, :1] > 0).astype(np.float32)), **options)
    assert one.confusion_matrix((x, x[:, :1] > 0)).pooled is None


# --- the bar --------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("done", [0, 1, 20, 44, 45])
@pytest.mark.parametrize("width", [20, 79, 120])
def test_the_bar_is_that_of_tqdm(done: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tqdm = pytest.importorskip("tqdm").tqdm
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    bar = ProgressBar(45, "Epoch 3/10")
    monkeypatch.setattr("time.monotonic", lambda: 2.5)
    bar._done = done
    line = bar.line(width)
    theirs = tqdm.format_meter(done, 45, 2.5, ncols=width, prefix="Epoch 3/10", unit="step", rate=done / 2.5 or None)
    assert len(line) <= width
    if width > 20:
        assert re.sub(r" *\| ", "| ", line, count=1) == re.sub(r" *\| ", "| ", theirs, count=1)


def test_a_narrow_terminal_shows_all_numbers_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    bar = ProgressBar(2, "Epoch 1")
    bar.show(2, {"loss": 0.5, "accuracy": 0.25, "val_loss": 0.75, "val_accuracy": 0.125, "learning_rate": 0.001})
    bar.close()
    _, first, *others = re.split("\r|\n", terminal.getvalue().replace("\x1b[K", ""))
    assert re.fullmatch(r"Epoch 1: 100%\|█+\| 2/2 \[[^\]]*/s\]", first) and len(first) == 59
    assert others == ["  loss=0.5, accuracy=0.25, val_loss=0.75,", "  val_accuracy=0.125, learning_rate=0.001", ""]
    assert all(len(line) < 60 for line in others)


def test_the_bar_without_block_characters_and_without_a_total(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    terminal.encoding = "ascii"  # type: ignore[assignment]
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = ProgressBar(4)
    bar.show(1, {"loss": 0.123456, "step": 1, "array": np.zeros(3)})
    line = bar.line(60)
    assert re.fullmatch(r" 25%\|#+\.+\| 1/4 \[00:00<\d\d:\d\d, [ \d.]+step/s, loss=0\.1235\]", line) and len(line) == 60
    unknown = ProgressBar(None, "Epoch 1")
    unknown.show(7, {"loss": 2.0})
    assert re.fullmatch(r"Epoch 1: 7step \[00:00, [ \d.]+step/s, loss=2\]", unknown.line(80))


def test_a_line_of_waiting_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.report.progress._SECONDS", 0.0)
    stream = io.StringIO()
    with waiting("compiling a step", stream=stream, plain=True):
        while not stream.getvalue():
            pass
    with quiet(), waiting("compiling a step", stream=stream, plain=True):
        pass
    assert stream.getvalue() == "compiling a step …\n"


PROGRAM = """
import numpy as np, rlx
x = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
model = rlx.nn.Sequential(rlx.nn.Linear(3, 2), rlx.nn.BatchNorm(2))
y = (x[:, 0] > 0).astype(int)
options = dict(loss="cross_entropy", batch_size=8, validation=0.25, progress={shown}, cache={folder!r})
rlx.train.fit(model, (x, y), **options)
"""


def test_programs_are_found_again_by_other_processes(tmp_path: Path) -> None:
    """The second process adds nothing to the folder of the cache, and writes one line without a terminal."""
    folder, counts, texts = tmp_path / "cache", [], []
    for shown in (False, True):
        text: Any = PROGRAM.format(shown=shown, folder=str(folder))
        ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=500, check=True)
        counts.append(sorted(p.name for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock"))
        texts.append(ran.stderr)
    assert counts[0] == counts[1] and counts[0]
    assert texts[0] == ""
    assert re.search(
        r"^Epoch 1/1: 2/2 \[\d\d:\d\d, [ \d.]+(step/s|s/step), loss=[\d.]+, val_loss=[\d.]+\]$", texts[1], re.M
    )
