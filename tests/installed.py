"""Packages that are installed for the processes of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def install(
    folder: Path, package: str, module: str, source: str, entry: str | None = None, group: str = "rlx.backends"
) -> None:
    """Install into a folder of `sys.path`: a module, and the metadata of a package with one entry point."""
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry or module} = {module}\n")


def python(folder: Path, code: str, *arguments: str) -> str:
    """Return the output of a process in which the packages of a folder are installed."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "RLX_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
