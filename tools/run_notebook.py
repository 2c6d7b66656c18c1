"""Run the notebook of `examples/notebook` and keep its outputs in the file, which the site and GitHub show.

    python -m tools.run_notebook

Times of execution and the version of Python are left out, so that only changed outputs change the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples/notebook/first_model.ipynb"


def executed(path: Path) -> Any:
    """Return a notebook after running it in a kernel like a user's."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, 4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return notebook


def without_traces(notebook: Any) -> dict[str, Any]:
    """Return a notebook as JSON, without what differs between two runs of the same cells."""
    data = json.loads(json.dumps(notebook))
    data["metadata"]["language_info"] = {"name": "python"}
    for cell in data["cells"]:
        cell["metadata"].pop("execution", None)
        for output in cell.get("outputs", ()):
            # A notebook shows the HTML, which contains the drawing.
            if "text/html" in output.get("data", {}):
                output["data"].pop("image/svg+xml", None)
    return data


def main() -> None:
    text = json.dumps(without_traces(executed(NOTEBOOK)), indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(text + "\n")


if __name__ == "__main__":
    main()
