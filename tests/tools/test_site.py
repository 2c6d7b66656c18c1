"""The documentation site (`make docs-site`): its pages of the Python API, and a build without warnings."""

from __future__ import annotations

import html
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rlx
from rlx.ops import surface

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("mkdocs", reason="`make docs-site` installs what builds the site")


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


def test_nothing_is_asked_of_other_hosts(site: Path) -> None:
    asked = [
        (page.name, address)
        for page in site.rglob("*.html")
        for address in re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]+)"', page.read_text())
    ]
    assert asked == []
