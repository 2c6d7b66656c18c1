"""The documentation site (`make docs-site`): its pages of the Python API, and a build without warnings."""

from __future__ import annotations

import html
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.dialect import spec_gen
from rlx.ops import surface
from tests.browser import chromium
from tools import pictures

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("mkdocs", reason="`make docs-site` installs what builds the site")
op_examples = pytest.importorskip("tools.site.op_examples")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site. A broken link, or another warning, is a failure."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def anchors(pages: Path) -> dict[str, str]:
    """Return the text of each anchor on some pages, up to the next anchor."""
    found: dict[str, str] = {}
    for page in pages.rglob("*.html"):
        pieces = re.split(r'<h[1-6] id="(rlx\.[^"]+)">', page.read_text())
        texts = (html.unescape(re.sub(r"<[^>]*>", "", text)) for text in pieces[2::2])
        found |= dict(zip(pieces[1::2], texts, strict=True))
    return found


def test_all_names_have_their_signatures_and_texts(site: Path) -> None:
    shown = anchors(site / "python-api")
    names = {f"rlx.{name}": getattr(rlx, name) for name in rlx.public_names()}  # type: ignore[attr-defined]
    names |= {f"rlx.ops.{name}": method for name, method in surface.methods().items()}
    missing = []
    for name, thing in names.items():
        if inspect.ismodule(thing) or name == "rlx.__version__":
            continue
        text = re.sub(r"\W+", "", shown.get(name, ""))
        parameters = list(inspect.signature(thing).parameters) if callable(thing) else []
        lines = (inspect.getdoc(thing) or "").splitlines() if callable(thing) else []
        wanted = [p for p in parameters if p != "self"] + lines[:1]
        missing += [f"{name}: {part}" for part in wanted if re.sub(r"\W+", "", part) not in text]
        missing += [name] * (name not in shown)
    assert missing == []


def test_modules_begin_with_what_users_begin_with(site: Path) -> None:
    for module, first in (("train", ["rlx.train.fit", "rlx.train.TrainStep"]), ("nn", ["rlx.nn.Module"])):
        text = (site / "python-api" / f"{module}.html").read_text()
        entries = re.findall(r'<h2 id="(rlx\.[^"]+)">', text)
        assert entries[: len(first)] == first
        assert entries[len(first) + 9 :] == sorted(entries[len(first) + 9 :], key=str.lower)


def test_links_lead_to_what_is_there(site: Path) -> None:
    pages = {page: page.read_text() for page in site.rglob("*.html") if page.name != "404.html"}
    known = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
    broken = []
    for page, text in pages.items():
        for address in re.findall(r'<a [^>]*href="([^":]*)"', text):
            path, _, anchor = html.unescape(address).partition("#")
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and anchor not in known.get(target, ())):
                broken.append(f"{page.relative_to(site)}: {address}")
    assert sorted(set(broken)) == []


def sections(page: Path) -> dict[str, str]:
    """Return the HTML of each section of a page by its anchor."""
    pieces = re.split(r'<h2 id="([^"]+)"', page.read_text())
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def test_ops_have_their_formula_and_an_example(site: Path) -> None:
    """The example has the op as text and the numbers of a run; pages of the Python API have its code."""
    missing = []
    for spec in spec_gen.OPS:
        page = "indexing" if spec.family == "index" else spec.family
        section = sections(site / "reference/ops" / f"{page}.html")[f"rlx{spec.name}"]
        if spec.name == "custom" or spec.terminator:  # ops of users, and the ends of regions
            continue
        text = html.unescape(re.sub(r"<[^>]*>", "", section))
        body = text.partition("Example:")
        missing += [spec.name] * (
            f"rlx.{spec.name}" not in body[2] or not re.search(r"result.* = |result.*: \w+\[", body[2])
        )
        missing += [f"formula of {spec.name}"] * (len(body[0]) < 60)
    assert missing == []
    shown = anchors(site / "python-api")
    softmax = re.sub(r"\s+", " ", shown["rlx.ops.softmax"])
    assert "g.softmax(x, axis=1)" in softmax and "result = [[" in softmax
    with_code = [name for name in surface.methods() if "set_outputs([g." in shown.get(f"rlx.ops.{name}", "")]
    assert len(with_code) > 150


def test_examples_of_code_give_their_numbers() -> None:
    for name in ("matmul", "relu", "sum", "concat", "conv"):
        example = op_examples.example_of(name)
        assert example is not None and f"g.{name}(" in example.python
        namespace: dict[str, Any] = {"rlx": rlx}
        exec(example.python, namespace)
        graph, values = namespace["g"], dict(example.values)
        inputs = {a.name: values[a.name] for a in graph.inputs}
        np.testing.assert_array_equal(rlx.evaluate(graph, inputs)[0], values["result"])


def test_pages_have_their_pictures_and_outputs(site: Path) -> None:
    """Drawings are parts of the pages, so that they follow the theme of the site; no page is made of a drawing."""
    for page, count in (("gallery.html", 6), ("inspection.html", 3), ("memory.html", 1), ("first-model.html", 2)):
        text = (site / page).read_text()
        assert len(re.findall(r'<svg xmlns="http://www.w3.org/2000/svg" [^>]*viewBox="0 0 \d+ \d+"', text)) >= count, (
            page
        )
    assert not list(site.rglob("source/**/*.svg*"))
    notebook = (site / "first-model.html").read_text()
    assert "4 parameters" in notebook and "read: [" in html.unescape(re.sub(r"<[^>]*>", "", notebook))


def test_drawings_are_current_and_have_no_machine(tmp_path: Path) -> None:
    for path, text in pictures.outputs().items():
        assert (ROOT / path).read_text() == text, f"{path}: run `make docs`"
    for name in (*pictures.MEASURED, *(Path(path).stem for path in pictures.outputs())):
        text = (ROOT / pictures.FOLDER / f"{name}.svg").read_text()
        assert str(ROOT) not in text and ".py:" not in text and "prefers-color-scheme" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_pages_fit_the_screen(site: Path, width: int, scheme: str) -> None:
    """No page is wider than the screen, and drawings are whole and have the colours of the theme."""
    with chromium() as browser:
        for name in ("gallery", "inspection", "first-model", "recipes", "installation", "reference/ops/order"):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.goto((site / f"{name}.html").as_uri())
            wide = page.evaluate("document.documentElement.scrollWidth")
            papers = page.evaluate(
                """() => [...document.querySelectorAll("svg rect.paper")].map(e => {
                  const r = e.getBoundingClientRect(); return [r.left, r.right, getComputedStyle(e).fill]; })"""
            )
            assert wide <= width, name
            for left, right, colour in papers:
                assert right == 0 or (left >= 0 and right <= width), name
                assert scheme == "light" or colour == "none", name
            page.close()


def test_nothing_is_asked_of_other_hosts(site: Path) -> None:
    asked = [
        (page.name, address)
        for page in site.rglob("*.html")
        for address in re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]+)"', page.read_text())
    ]
    assert asked == []
