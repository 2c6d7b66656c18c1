"""The escaping functions for names, one for each language."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import rlx
from rlx.cli.display import Steps
from rlx.report.progress import progress, waiting
from rlx.report.text import markup
from rlx.report.text import table as text_table
from rlx.support.markdown import markdown, table
from rlx.support.printable import printable, printable_lines
from rlx.support.short import shorten_lines
from rlx.targets.c.lower import names as c_names
from rlx.targets.c.lower.writer import Writer, commented
from rlx.targets.fpga.lower import names as verilog_names
from rlx.targets.lowering.names import UniqueNames
from rlx.train.loggers import CSVLogger
from rlx.train.progress_bar import ProgressBar
from rlx.weights import safetensors
from tests.names import readers
from tests.names.hostile import BENIGN, KINDS, NAMES, arrays_of, graph_of, is_harmless


def test_comments_of_c_hold_anything() -> None:
    for name in NAMES:
        for write in (
            lambda w, n: w.comment(n),
            lambda w, n: w.comment(f"{n}\n{n}"),
            lambda w, n: w.comment(" ".join([n] * 20)),
            lambda w, n: w.line("int x;", n),
        ):
            w = Writer()
            write(w, name)
            w.line("int y;")
            tokens = readers.c(str(w))
            assert tokens in (["w", "w", ";"], ["w", "w", ";", "w", "w", ";"]), name
            assert is_harmless(str(w)) and not re.search(r"(\\|\?\?/) *$", str(w), re.MULTILINE), name
        assert "\n" not in commented(name)


def test_comments_of_verilog_hold_anything() -> None:
    for name in NAMES:
        text = verilog_names.commented(name)
        assert text.isascii() and "\n" not in text and is_harmless(text, keep="") and not text.endswith("\\"), name
        assert readers.verilog(f"// Input '{text}\nwire x;") == ["w", "w", ";"]


def test_names_of_layers_differ() -> None:
    """Scopes may be any text, be equal or differ in case only, and may look like the name of another layer."""
    scopes = [*NAMES, "a", "A", "a_conv", "a/conv", "conv", "conv_2", "", "", "a", "x/" * 40 + "y"]
    counts: dict[str, int] = {}
    names = [verilog_names.layer_name(counts, base, scope) for scope in scopes for base in ("conv", "bias", "conv")]
    assert len({name.lower() for name in names}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,39}", name) and "__" not in name for name in names)
    assert verilog_names.layer_name({}, "conv", "encoder/stem") == "encoder_stem_conv"


@pytest.mark.parametrize("identifier", [c_names.identifier, verilog_names.identifier])
def test_identifiers_are_words_that_differ_in_more_than_case(identifier: object) -> None:
    names = UniqueNames(identifier)  # type: ignore[arg-type]
    taken = [names.take(name) for name in NAMES]
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", t) and len(t) < 80 for t in taken)
    assert len({t.lower() for t in taken}) == len(NAMES)
    assert UniqueNames(identifier).take("layer_1") == "layer_1"  # type: ignore[arg-type]


def test_markdown_is_what_a_reader_sees() -> None:
    pytest.importorskip("markdown_it")
    text = "\n".join(table(("a", "b"), [(markdown(name), markdown(f"at {name}")) for name in NAMES]))
    assert readers.cells(text)[2::2] == [shown(name) for name in NAMES]
    assert readers.markdown(text) == readers.markdown("\n".join(table(("a", "b"), [(n, n) for n in BENIGN])))
    for name in NAMES:
        assert is_harmless(markdown(name), keep=""), name
        for around in ("{}", "# {}", "- {}", "a {} b"):
            text, plain = around.format(markdown(name)), around.format("a")
            if markdown(name):
                assert readers.markdown(text) == readers.markdown(plain), name
        if markdown(name):
            assert readers.cells(markdown(name)) == [shown(name)]


def shown(name: str) -> str:
    return printable(shorten_lines(name), keep="").strip()


def test_markup_is_text_in_html_and_xml() -> None:
    for name in NAMES:
        text = markup(name)
        root = ElementTree.fromstring(f'<a b="{text}">{text}</a>')
        assert root.text == printable(name) and not len(root)
        assert readers.html(f'<p title="{text}">{text}</p>') == readers.html('<p title="a">a</p>')
        assert is_harmless(text)


def test_lines_for_terminals_are_as_many_as_names() -> None:
    assert is_harmless(printable_lines(NAMES)) and printable_lines(NAMES).count("\n") == len(NAMES)
    assert all(is_harmless(line, keep="") for line in text_table([(n, n) for n in NAMES if n.strip("\n")]))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_shows_names_as_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    for name in NAMES:
        list(progress([1, 2], name, stream=terminal))
        with Steps(terminal)(name):
            pass
    monkeypatch.setattr("rlx.report.progress._SECONDS", 0.001)
    with waiting("".join(NAMES), stream=terminal):
        while "0 s)" not in terminal.getvalue().rpartition(NAMES[-1])[2]:
            time.sleep(0.001)
    monkeypatch.setattr("sys.stderr", terminal)
    for name in NAMES:
        bar = ProgressBar(3)
        bar.show(1, {name: 0.5})
        bar.close()
    assert is_harmless(terminal.getvalue().replace("\r", "").replace("\x1b[K", ""))
    assert r"\x1b[2J" in terminal.getvalue()


def test_logs_in_csv_are_read_as_written(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path / "log.csv")
    for step in range(2):
        logger({"step": step, **{name: float(i) for i, name in enumerate(NAMES)}})
    CSVLogger(tmp_path / "log.csv")({"step": 2, **dict.fromkeys(NAMES, 0.5)})
    with open(tmp_path / "log.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["step", *NAMES] and {len(row) for row in rows} == {len(NAMES) + 1} and len(rows) == 4


def test_files_of_weights_are_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    arrays = {name: np.full(2, i, np.float32) for i, name in enumerate(NAMES)}
    safetensors.write(path, arrays, {"format": "pt"})
    stored = rlx.weights.open(path)
    assert {n: w.numpy().tolist() for n, w in stored.items()} == {n: a.tolist() for n, a in arrays.items()}
    with pytest.raises(rlx.Error, match="keeps the name '__metadata__'"):
        safetensors.write(path, {"__metadata__": np.ones(2, np.float32)}, {})
    assert len(rlx.weights.open(path)) == len(NAMES), "the file that was there"


def test_programs_with_hostile_names_are_stored(tmp_path: Path) -> None:
    graph = graph_of(NAMES[::5], NAMES[-3])
    given = {kind: arrays_of(graph, kind) for kind in KINDS}
    program = rlx.Session("c").compile(graph, params=given["param"])
    program.save(tmp_path / "p.rlxa")
    again = rlx.load(tmp_path / "p.rlxa")
    again.set_params(given["param"])
    for got, wanted in zip(again.run(given["input"]), program.run(given["input"]), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_logs_for_tensorboard_are_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from rlx.train.loggers import TensorBoardLogger

    logger = TensorBoardLogger(tmp_path)
    logger({"step": 1, **dict.fromkeys(NAMES, 0.5)})
    logger.close()
    assert list(tmp_path.iterdir())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_whatever_passes_are_called(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("shtab")
    from rlx.cli import completion
    from rlx.passes import native

    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    summaries = {f"pass-{i}": name for i, name in enumerate(NAMES)}
    monkeypatch.setattr(native, "names", lambda: summaries)
    script = completion.script("rlx-opt", shell)
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert is_harmless(script)


def test_json_is_read_as_written() -> None:
    text = json.dumps({name: name for name in NAMES})
    assert json.loads(text) == {name: name for name in NAMES} and text.isascii()
    assert readers.as_json(text) == readers.as_json(json.dumps({n: n for n in BENIGN}))


def test_readers_see_what_names_could_do() -> None:
    """The tests' readers detect a name that is not escaped."""
    plain = ["w", "w", ";"]
    assert readers.c("int x; /* a */\n") == readers.c("int x; // a ??/\nint y;") == plain
    for name in ("a */ int y; /*", "*\\\n/ b /*", "*??/\n/ b /*"):
        assert readers.c(f"int x; /* {name} */\n") != plain, name
    with pytest.raises(AssertionError):
        readers.c("int x; /* */ */")
    assert readers.html("<p>a<!-- b --></p>") != readers.html("<p>a</p>")
    with pytest.raises(AssertionError):
        readers.html("<p></p><b></p>")
    assert not is_harmless("\x1b") and not is_harmless("\u202e") and is_harmless("größe")
