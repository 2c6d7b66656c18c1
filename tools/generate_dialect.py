"""Generate the package's files for the dialect from its TableGen records.

    python -m tools.generate_dialect [--check] [--records=JSON]

The output is committed: the op table `spec_gen.py`, the IRDL that registers the dialect at run time, and the op
reference. `tools/tablegen` reads the records. With `--records`, they come from `llvm-tblgen --dump-json`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rlx.support.errors import Error
from tools import generated
from tools.generated import ROOT
from tools.ods import irdl, reference, spec_source
from tools.ods.ops import declared_ops
from tools.tablegen import Records, from_json, read

REFERENCE = "docs/reference/ops"


def read_dialect(root: Path) -> Records:
    """Return the records of `dialect/` in a folder with the layout of the repository.

    Raises:
        ParseError: They are wrong; the location is `file:line:column`.
    """
    include_dirs = [ROOT / "tools" / "tablegen" / "include", root / "dialect"]
    return read(root / "dialect" / "RlxDialect.td", include_dirs, root)


def outputs(records: Records) -> dict[str, str]:
    """Return every generated file: path below the repository's root, and text.

    Raises:
        ParseError: A record is not a valid op.
    """
    ops = declared_ops(records)
    specs = [op.spec for op in ops]
    files = {
        "python/rlx/dialect/spec_gen.py": spec_source.spec_source(specs),
        "python/rlx/dialect/rlx.irdl.mlir": irdl.irdl_source(specs),
    }
    return files | {f"{REFERENCE}/{name}": page for name, page in reference.pages(ops).items()}


def update(root: Path, files: dict[str, str], check: bool) -> list[str]:
    """Write files that are out of date and remove pages of deleted families. With `check`, only return their names."""
    pages = {f"{REFERENCE}/{path.name}": path for path in (root / REFERENCE).glob("*.md")}
    gone = [name for name in pages if name not in files]
    for name in () if check else gone:
        pages[name].unlink()
    return generated.update(root, files, check) + gone


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--records", type=Path, help="the output of `llvm-tblgen --dump-json`, instead of the .td files"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder that contains dialect/, python/ and docs/")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    try:
        files = outputs(from_json(arguments.records) if arguments.records else read_dialect(root))
    except Error as problem:
        raise SystemExit(f"error: {problem}") from None
    stale = update(root, files, arguments.check)
    if arguments.check and stale:
        raise SystemExit("stale, run `make dialect`: " + ", ".join(stale))


if __name__ == "__main__":
    main()
