"""The Python blocks of the pages run as they stand, in order, in one namespace for each page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlx.cli.opt_flags import FLAGS
from rlx.dialect import spec_gen

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "docs/getting-started.md",
    "docs/conventions.md",
    "docs/extending.md",
    "docs/transforms.md",
    "docs/weights.md",
    "docs/importers.md",
    "docs/memory.md",
    "docs/inspection.md",
    "docs/training.md",
    "docs/assembly.md",
)
OTHER_PAGES = (
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/backends.md",
    "docs/targets.md",
    "docs/trust.md",
    "docs/rlx-opt.md",
)


def blocks(text: str) -> list[tuple[int, str]]:
    """Line number and source of each Python block."""
    return [
        (text[: match.start(1)].count("\n") + 1, match.group(1))
        for match in re.finditer(r"^```python\n(.*?)^```", text, re.S | re.M)
    ]


def test_the_number_of_ops_is_that_of_the_dialect() -> None:
    (count,) = re.findall(r"\b(\d+) ops\b", (ROOT / "README.md").read_text())
    assert int(count) == len(spec_gen.OPS)


def test_the_page_of_rlx_opt_has_all_flags() -> None:
    page = (ROOT / "docs/rlx-opt.md").read_text()
    assert [flag.name for flag in FLAGS if f"-{flag.name}" not in page] == []


@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = blocks((ROOT / page).read_text())
    assert found
    namespace: dict[str, object] = {"__name__": "page"}
    for line, source in found:
        # Line numbers of the page, so that a failure points at it.
        exec(compile("\n" * (line - 1) + source, str(ROOT / page), "exec"), namespace)


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES])
def test_links_lead_somewhere(page: str) -> None:
    prose = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"
