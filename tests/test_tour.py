"""`docs/tour.md`: the files and names in it exist, and the core has at most 20,000 lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "rlx"
TEXT = re.sub(r"```.*?```", "", (ROOT / "docs" / "tour.md").read_text(), flags=re.S)
CORE = ("mlir.py", "parts.py", "dialect/dtypes.py", "dialect/spec.py", "support", "ir", "passes/*.py", "transforms")
MOST_LINES = 20_000
PATHS = sorted(set(re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", TEXT)))
# `Card` in `ir/op/card.py`; names such as `Tensor` before it, separated by commas or "and".
NAMES = [
    (name.rpartition(".")[2], path)
    for names, path in re.findall(r"((?:`[\w.]+`(?:, | and )?)+) in `([\w/]+\.py)`", TEXT)
    for name in re.findall(r"`([\w.]+)`", names)
]


@pytest.mark.parametrize("path", PATHS)
def test_files_and_folders_are_there(path: str) -> None:
    assert (PACKAGE / path).exists()


@pytest.mark.parametrize(("name", "path"), NAMES)
def test_names_are_defined_there(name: str, path: str) -> None:
    assert re.search(rf"^ *(?:def|class|async def) {name}\b|^{name} = ", (PACKAGE / path).read_text(), re.M)


def test_the_core_fits_in_a_head() -> None:
    files = {file for part in CORE for file in _files(part)}
    assert sum(file.read_text().count("\n") for file in files) <= MOST_LINES
    assert len(NAMES) > 25, "the page names what it visits"


def _files(part: str) -> list[Path]:
    return [*PACKAGE.glob(part)] if part.endswith(".py") else [*(PACKAGE / part).rglob("*.py")]
