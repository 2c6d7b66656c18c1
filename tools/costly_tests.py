"""Write `tests/costly.txt`, the list of costly tests, from the times that pytest measured.

    make test-ci ARGS=--junitxml=build/times.xml
    python -m tools.costly_tests build/times.xml

Measure on a quiet machine and with an empty cache of compiled programs (`rm -r build/test-cache`).
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "costly.txt"
COSTLY_SECONDS = 0.3
# These test the samples of every op on every path, and find most bugs: all of them are in every run.
_ALWAYS = "tests/conformance/"
_HEADER = """\
# The test functions that take long, with the mean seconds of a case. `make test` runs one in five of their cases.
# Written by `python -m tools.costly_tests`.
"""


def measured(report: Path) -> dict[str, list[float]]:
    """Return the seconds of the cases of each test function, by its name, from a report of `--junitxml`."""
    times: dict[str, list[float]] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        module, function = case.get("classname"), case.get("name", "").partition("[")[0]
        if module and function.startswith("test_"):  # others are RUN lines
            name = f"{module.replace('.', '/')}.py::{function}"
            times.setdefault(name, []).append(float(case.get("time", "0")))
    return times


def listing(times: Mapping[str, Sequence[float]]) -> str:
    """Return the text of the list."""
    means = {name: sum(seconds) / len(seconds) for name, seconds in times.items()}
    costly = {name: mean for name, mean in means.items() if mean >= COSTLY_SECONDS and not name.startswith(_ALWAYS)}
    return _HEADER + "".join(f"{name} {costly[name]:.1f}\n" for name in sorted(costly))


def main() -> int:
    """Write the list."""
    parser = argparse.ArgumentParser(prog="python -m tools.costly_tests", description="Write tests/costly.txt.")
    parser.add_argument("report", type=Path, help="what pytest --junitxml wrote")
    LIST.write_text(listing(measured(parser.parse_args().report)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
