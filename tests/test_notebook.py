"""The notebook of examples/notebook, run in a kernel like a user's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples/notebook/first_model.ipynb"
_RUN = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return the code cells with their output. A separate process isolates the client's event loop."""
    path = tmp_path_factory.mktemp("notebook") / "ran.ipynb"
    done = subprocess.run([sys.executable, "-c", _RUN, str(NOTEBOOK), str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


def shown(cells: list[Any], source: str) -> tuple[str, dict[str, str]]:
    """Return the printed text of the cell with a piece of source, and its result by MIME type."""
    (cell,) = [cell for cell in cells if source in cell.source]
    printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    results = [output.data for output in cell.outputs if output.output_type == "execute_result"]
    return printed, dict(results[0]) if results else {}


def test_it_trains_and_what_is_loaded_gives_the_same(cells: list[Any]) -> None:
    losses = [float(text) for text in re.findall(r"loss ([0-9.]+)", shown(cells, "rlx.train.fit")[0])]
    assert losses[-1] < 0.2 * losses[0]
    before = float(shown(cells, "float(np.mean(guess(params")[1]["text/plain"])
    after = float(shown(cells, "test_accuracy = ")[1]["text/plain"])
    assert before < 0.4 and after > 0.85
    assert shown(cells, "np.array_equal(again, answer)")[1]["text/plain"] == "True"


def test_graphs_and_reports_are_drawn(cells: list[Any]) -> None:
    _, graph = shown(cells, "g.set_outputs")
    assert "<svg" in graph["image/svg+xml"] and "<svg" in graph["text/html"]
    assert graph["text/plain"].startswith("<Graph digits(x: f32[batch, 1, 8, 8], label: i32[batch]")
    assert "Listing" in graph["text/html"]
    _, result = shown(cells, "rlx.Pipeline")
    assert "fusion:" in result["text/html"] and result["text/plain"].startswith("<CompileResult @reader for cpu")
    _, program = shown(cells, "rlx.Session().compile")
    assert "all set" in program["text/plain"] and "4 parameters" in program["text/html"]


def test_places_are_cells(cells: list[Any]) -> None:
    number = next(cell.execution_count for cell in cells if "g.set_outputs" in cell.source)
    assert f"In[{number}]:3, in 0" in shown(cells, "rlx.inspect_graph(g)")[0]


def test_no_progress_is_written_into_it(cells: list[Any]) -> None:
    written = [o for cell in cells for o in cell.outputs if o.output_type == "stream" and o.name == "stderr"]
    assert written == []


def test_it_is_kept_with_the_outputs_of_its_cells(cells: list[Any]) -> None:
    """`python -m tools.run_notebook` writes them. Numbers of times and of the machine differ."""
    kept = [cell for cell in nbformat.read(NOTEBOOK, 4).cells if cell.cell_type == "code"]
    assert [outlines(cell) for cell in kept] == [outlines(cell) for cell in cells]
    text = NOTEBOOK.read_text()
    assert "iopub" not in text and "/tmp/" not in text
    drawn = [o for cell in kept for o in cell.outputs if "<svg" in str(o.get("data", {}).get("text/html", ""))]
    assert len(drawn) >= 2


def outlines(cell: Any) -> list[Any]:
    """Return the kind of each output of a cell, with the words of its text."""
    found: list[Any] = []
    for output in cell.outputs:
        data = output.get("data", {})
        text = "".join(data.get("text/plain", output.get("text", "")))
        found.append((output.output_type, "text/html" in data, re.findall(r"[A-Za-z_]{3,}", text)[:20]))
    return found
