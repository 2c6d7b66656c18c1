"""The Python blocks of the documentation run as they are, in order, in one namespace per page."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.cli.main import main
from rlx.cli.opt_flags import FLAGS
from rlx.dialect import spec_gen

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
# Pages whose blocks are run elsewhere, or are fragments.
NOT_RUN = {
    "docs/backends.md": "a file, which tests/targets/test_registry.py writes and uses",
    "CONTRIBUTING.md": "a rule of an importer",
}

# Packages that are not in an extra of the tests. Blocks that import them run if they are installed.
OPTIONAL = ("torch",)


def blocks(text: str) -> list[tuple[int, str]]:
    """Return line number and source of each Python block."""
    return [
        (text[: match.start(1)].count("\n") + 1, match.group(1))
        for match in re.finditer(r"^```python\n(.*?)^```", text, re.S | re.M)
    ]


def test_recipes_are_short() -> None:
    """A recipe is a section. Its longest block has 30 lines, and the commands next to it are those of RLX."""
    text = (ROOT / "docs/recipes.md").read_text()
    sections = re.split(r"^## ", text, flags=re.M)[1:]
    assert {"Quantise an ONNX file and run it in C", "Fine-tune a folder", "Add a pass"} <= {
        section.split("\n", 1)[0] for section in sections
    }
    for section in sections:
        found = blocks(section)
        assert found and all(source.count("\n") <= 30 for _, source in found), section[:40]
    from rlx.cli.main import COMMANDS

    for command in re.findall(r"^\$ rlx ([a-z]+)", text, re.M):
        assert command in COMMANDS


def test_the_number_of_ops_is_that_of_the_dialect() -> None:
    (count,) = re.findall(r"\b(\d+) ops\b", (ROOT / "README.md").read_text())
    assert int(count) == len(spec_gen.OPS)


def test_the_page_of_rlx_opt_has_all_flags() -> None:
    page = (ROOT / "docs/rlx-opt.md").read_text()
    assert [flag.name for flag in FLAGS if f"-{flag.name}" not in page] == []


def with_blocks() -> list[str]:
    return [page for page in PAGES if blocks((ROOT / page).read_text())]


def test_what_is_not_run_has_blocks() -> None:
    assert set(NOT_RUN) <= set(with_blocks())


@pytest.mark.parametrize("page", [page for page in with_blocks() if page not in NOT_RUN])
def test_page_runs(
    page: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = blocks((ROOT / page).read_text())
    monkeypatch.chdir(tmp_path)  # for the files that a page writes
    namespace: dict[str, object] = {"__name__": "page"}
    for line, source in found:
        if any(f"import {package}\n" in source and find_spec(package) is None for package in OPTIONAL):
            continue
        # Use the line numbers of the page, so that a failure points at it.
        exec(compile("\n" * (line - 1) + source, str(ROOT / page), "exec", dont_inherit=True), namespace)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    prose = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_pip_lines_are_true() -> None:
    """RLX is on no index: it is installed from here, or as a wheel. An extra of an installed RLX needs no index for RLX."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    wrong = []
    files = [*PAGES, "packaging/deploy/README.md", "Makefile"]
    files += [str(p.relative_to(ROOT)) for folder in ("python", "examples") for p in (ROOT / folder).rglob("*.py")]
    for file in files:
        for line in re.findall(r"pip install[^\n`#]*", (ROOT / file).read_text()):
            ours = re.findall(r"(?<![\w/])(rlx(?:[-_]\w+)?)(?![\w/-])(\[[\w,-]+\])?", line)
            wrong += [f"{file}: {line}" for name, chosen in ours if name != "rlx" or not chosen]
            wrong += [
                f"{file}: {line}" for _, chosen in ours if not set(chosen.strip("[]").split(",")) - {""} <= extras
            ]
    assert wrong == []


def test_the_page_of_installation_is_that_of_the_project() -> None:
    page = (ROOT / "docs/installation.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = re.findall(r"^\| `([\w-]+)` \| (\d+) \|", page, re.M)
    assert sorted(name for name, _ in rows) == sorted(project["optional-dependencies"])
    version = rlx.__version__
    assert set(re.findall(r"dist/(rlx\w*-[\d.]+)-\*\.whl", page)) == {f"rlx-{version}", f"rlx_deploy-{version}"}
    assert "rlx-run" in project["scripts"] and "wheels:" in (ROOT / "Makefile").read_text()


def test_the_slowest_tests_exist() -> None:
    """Every test that docs/slow-tests.md names is there."""
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs/slow-tests.md").read_text())
    assert len(named) >= 25
    assert [name for name in named if f"def {name[1]}" not in (ROOT / name[0]).read_text()] == []


def test_a_trained_network_becomes_integers_on_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines from `fit` to files, the command after them, and the names of layers on the pages of C and FPGAs."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/quantisation.md").read_text()
    sources = [source for _, source in blocks(page) if "trained" in source]
    assert "trained.save(" in sources[-1]
    names = {"rlx": rlx, "np": np, "random": np.random.default_rng(0)}
    for source in sources:
        exec(source, names)
    (command,) = re.findall(r"^\$ rlx (quantize model.mlir --integer-only.*)$", page, re.M)
    assert main(command.split()) == 0
    for target, kind, pattern in (("cortexm", "c", r"`(step_1_x_0_\w+)`"), ("fpga", "verilog", r"`(x0_\w+)`")):
        capsys.readouterr()
        assert main(["compile", "q.mlir", f"--target={target}", f"--emit={kind}"]) == 0
        (name,) = re.findall(pattern, (ROOT / "docs" / f"{target}.md").read_text())
        assert re.search(rf"(\b|__){name}\b", capsys.readouterr().out)
