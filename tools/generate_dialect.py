"""Generate what the package needs of the dialect from its TableGen records.

    python -m tools.generate_dialect [--check] [--records=JSON]

Output, all committed: the op table `spec_gen.py`, the IRDL that registers the dialect at run time, and the op reference. The
records are read by `tools/tablegen`; with `--records`, they are those that `llvm-tblgen --dump-json` has written.
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
    """The records of `dialect/` in a folder that is laid out like the repository.

    Raises:
        ParseError: They are wrong; the location is `file:line:column`.
    """
    include_dirs = [ROOT / "tools" / "tablegen" / "include", root / "dialect"]
    return read(root / "dialect" / "RlxDialect.td", include_dirs, root)


def outputs(records: Records) -> dict[str, str]:
    """Every generated file: path below the repository's root, and text.

    Raises:
        ParseError: A record is not what an op has to be.
    """
    ops = declared_ops(records)
    specs = [op.spec for op in ops]
    files = {
        "python/rlx/dialect/spec_gen.py": spec_source.spec_source(specs),
        "python/rlx/dialect/rlx.irdl.mlir": irdl.irdl_source(specs),
    }
    return files | {f"{REFERENCE}/{name}": page for name, page in reference.pages(ops).items()}


def update(root: Path, files: dict[str, str], check: bool) -> list[str]:
    """Write the files that are not current and remove pages of families that are gone; with `check`, only name them."""
    pages = {f"{REFERENCE}/{path.name}": path for path in (root / REFERENCE).glob("*.md")}
    gone = [name for name in pages if name not in files]
    for name in () if check else gone:
        pages[name].unlink()
    return generated.update(root, files, check) + gone


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--records", type=Path, help="instead of .td files, what `llvm-tblgen --dump-json` made of them"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of dialect/, python/ and docs/")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")
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
