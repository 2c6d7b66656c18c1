"""Build the wheel of `rlx-deploy`, which contains only the files that running a compiled program needs.

    python -m tools.deploy_wheel [-o DIR]

These are the files that `rlx.deploy` imports, directly or indirectly. Imports inside functions are not followed: they
belong to compilation, or are listed in `LATER`. `tests/deploy/test_distribution.py` checks this.
"""

from __future__ import annotations

import argparse
import ast
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "python"
PROJECT = ROOT / "packaging" / "deploy"
# Modules that are imported by name, or on demand.
LATER = (
    *("rlx.version", "rlx.targets.iree.targets", "rlx.targets.iree.program", "rlx.runtime.display"),
    *("rlx.cli.run_program", "rlx.cli.values", "rlx.runtime.device", "rlx.weights.npy"),
)


def module_file(name: str) -> Path | None:
    """Return the file of a module of RLX; None if there is none of that name."""
    base = SOURCE.joinpath(*name.split("."))
    return next((file for file in (base / "__init__.py", base.with_suffix(".py")) if file.exists()), None)


def imported(file: Path, *, later: bool = False) -> set[str]:
    """Return the modules of RLX that a file imports.

    Args:
        file: The file.
        later: Return the imports inside functions, instead of those at import time.
    """
    return set(_found(ast.parse(file.read_text()), later, False))


def _found(node: ast.AST, later: bool, inside: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and child.module and inside == later:
            for alias in child.names:
                name = f"{child.module}.{alias.name}"
                yield name if module_file(name) else child.module
        elif isinstance(child, ast.Import) and inside == later:
            yield from (alias.name for alias in child.names)
        else:
            yield from _found(child, later, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def modules() -> dict[str, Path]:
    """Return the files of the distribution, by module."""
    found: dict[str, Path] = {}
    waiting = ["rlx.deploy", *LATER]
    while waiting:
        name = waiting.pop()
        if name in found or name.partition(".")[0] != "rlx" or (file := module_file(name)) is None:
            continue
        found[name] = file
        waiting += imported(file)
        waiting += [name.rpartition(".")[0]]  # packages have an `__init__.py` each
    return dict(sorted(found.items()))


def build(folder: Path) -> Path:
    """Build the wheel into a folder and return its path. The build back end is that of this environment."""
    with tempfile.TemporaryDirectory(prefix="rlx-deploy-") as temporary:
        stage = Path(temporary)
        for file in modules().values():
            target = stage / file.relative_to(SOURCE)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        for name in ("pyproject.toml", "README.md"):
            shutil.copyfile(PROJECT / name, stage / name)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--no-build-isolation", "--wheel-dir", folder, stage], check=True)
    (wheel,) = folder.glob("rlx_deploy-*.whl")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist", metavar="DIR", help="default: dist")
    print(build(parser.parse_args().output))


if __name__ == "__main__":
    main()
