"""All bugs of `python -m tools.mutate` can be planted. The tool itself runs too long for a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutate import ROOT, place_of
from tools.mutations import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_bug_has_its_place(mutation: Mutation) -> None:
    file = place_of(mutation, ROOT / "python/rlx")
    compile(file.read_text().replace(mutation.old, mutation.new), str(file), "exec")


def test_code_that_has_changed_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    for old, times in (("x = 2", 0), ("x = 1", 2)):
        with pytest.raises(LookupError, match=f"'a bug': its text stands {times} times"):
            place_of(Mutation("a bug", old, "x = 3", ""), tmp_path)
