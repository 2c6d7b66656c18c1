"""Generated and committed files: written if they are out of date, or only checked."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def update(root: Path, files: Mapping[str, str], check: bool) -> list[str]:
    """Write files that are out of date, and return their names. With `check`, only return the names.

    Args:
        root: The folder that the paths are relative to.
        files: Texts by path.
        check: Write nothing.
    """
    stale = [name for name, text in files.items() if not _holds(root / name, text)]
    for name in () if check else stale:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name], encoding="utf-8")
    return stale


def _holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_bytes() == text.encode()


def main(description: str | None, files: Mapping[str, str]) -> None:
    """Run the command line of the generators in `make docs`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    check = parser.parse_args().check
    stale = update(ROOT, files, check)
    if check and stale:
        raise SystemExit(f"{', '.join(stale)}: stale, run `make docs`")
