"""Mutation testing: plant the bugs of `tools/mutations.py`, one at a time, in a copy of the package, and run the tests.

`python -m tools.mutate` runs the tests of `make test` for each bug, under two seeds, and prints the test that found it.
A test that fails without the bug as well has found nothing: the tool stops there. `--costly` runs all costly tests, as
in CI, and `--full` then runs all tests for the bugs that were not found. The work tree is never changed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlx.native import native
from tools.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[1]
_PACKAGE = Path("python/rlx")
# Without this, an editable install would find its package before PYTHONPATH.
_COPY_FIRST = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'Redirecting' not in type(f).__name__]"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
_BEGUN = re.compile(r"^(tests/\S+::.*)$", re.MULTILINE)
_NONE_FAILED, _NONE_COLLECTED = 0, 5
_SOME_FAILED = (1, 2)  # with several processes, the first failure is an interrupt


@dataclass(frozen=True)
class Outcome:
    """The outcome of one bug.

    Attributes:
        mutation: The bug.
        test: The test that found it, if one did.
        run: The number of the run, from 1.
        seconds: The time that it took.
    """

    mutation: Mutation
    test: str | None
    run: str
    seconds: float

    def __str__(self) -> str:
        found = f"run {self.run}: {self.test}" if self.test else "NOT FOUND"
        return f"{self.mutation.name:60} {self.seconds:5.0f} s  {found}"


@dataclass(frozen=True)
class Runs:
    """The tests to run.

    Attributes:
        everything: All tests, not only those that should find a bug.
        costly: All costly tests, instead of one in five.
        full: At the end, without any sampling.
    """

    everything: bool
    costly: bool
    full: bool


def place_of(mutation: Mutation, package: Path) -> Path:
    """Return the file that contains a bug's text.

    Raises:
        LookupError: The text occurs nowhere, or more than once, because the code has changed.
    """
    files = [path for path in sorted(package.rglob("*.py")) if not path.name.endswith("_gen.py")]
    places = [path for path in files for _ in range(path.read_text().count(mutation.old))]
    if len(places) != 1:
        raise LookupError(
            f"{mutation.name!r}: its text stands {len(places)} times in {package}, and not once: "
            f"mend it in tools/mutations.py\n{mutation.old}"
        )
    return places[0]


class Copy:
    """A copy of the work tree to plant bugs in.

    Args:
        folder: An empty folder.
        arguments: Additional arguments for pytest.
    """

    def __init__(self, folder: Path, arguments: Sequence[str] = ()):
        self.folder, self.arguments = folder, arguments
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        compiled = Path(native().__file__ or "")
        shutil.copy2(compiled, folder / _PACKAGE / compiled.name)
        (folder / "python" / "sitecustomize.py").write_text(_COPY_FIRST)
        where = self._python("-c", "import rlx; print(rlx.__file__)").stdout.strip()
        if not Path(where).is_relative_to(folder):
            raise RuntimeError(f"the tests would import {where}, and not the copy in {folder}")

    def outcome(self, mutation: Mutation, seeds: Sequence[int], runs: Runs) -> Outcome:
        """Plant a bug, run tests until one fails, and remove the bug.

        Raises:
            RuntimeError: That test fails without the bug as well.
        """
        file = place_of(mutation, self.folder / _PACKAGE)
        text, began = file.read_text(), time.monotonic()
        file.write_text(text.replace(mutation.old, mutation.new))
        try:
            failures = (
                (*run, self._first_failure([*run[1], *mutation.folders])) for run in self._runs(mutation, seeds, runs)
            )
            run, words, test = next((f for f in failures if f[2] is not None), ("", [], None))
        finally:
            file.write_text(text)
        if test is not None and self._first_failure([*words, re.split(r"\[| \(signal", test)[0]]) is not None:
            raise RuntimeError(f"{test} fails without the bug {mutation.name!r} as well")
        return Outcome(mutation, test, run, time.monotonic() - began)

    def _runs(self, mutation: Mutation, seeds: Sequence[int], runs: Runs) -> Iterator[tuple[str, list[str]]]:
        """Yield the name of each run and its arguments for pytest."""
        quick = [] if runs.costly else ["--quick"]
        for number, seed in enumerate(seeds, 1):
            yield str(number), [*quick, f"--seed={seed}", "-k", mutation.likely]
            if runs.everything:
                yield str(number), [*quick, f"--seed={seed}", "-k", f"not ({mutation.likely})"]
        if runs.full:
            yield "of all", ["--full", "-k", mutation.likely]
            if runs.everything:
                yield "of all", ["--full", "-k", f"not ({mutation.likely})"]

    def _python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a Python process that imports the copy."""
        environment = os.environ | {
            "PYTHONPATH": str(self.folder / "python"),
            "RLX_CACHE_DIR": str(self.folder / "build/test-cache"),
        }
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)

    def _first_failure(self, words: Sequence[str]) -> str | None:
        command = ["-m", "pytest", "-x", "-v", "-p", "no:cacheprovider", "-rfE", *words]
        done = self._python(*command, *self.arguments)
        if done.returncode in (_NONE_FAILED, _NONE_COLLECTED):
            return None
        if done.returncode < 0 and (begun := _BEGUN.findall(done.stdout)):
            return f"{begun[-1].strip()} (signal {-done.returncode})"
        named = _FAILED.search(done.stdout)
        if done.returncode not in _SOME_FAILED or named is None:
            raise RuntimeError(f"{' '.join(done.args)}\n{done.stdout}\n{done.stderr}")
        return named[1]


def main() -> int:
    """Plant the bugs; the exit code is 1 if at least one bug in ten was not found."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutate", description="Plant bugs and report the tests that find them."
    )
    parser.add_argument("names", nargs="*", help="plant only bugs whose names contain one of these words")
    parser.add_argument(
        "--seeds", default="0,1", help="the seeds of the runs: the default one, and another (default: 0,1)"
    )
    parser.add_argument("--likely", action="store_true", help="run only the tests that should find a bug")
    parser.add_argument("--costly", action="store_true", help="run all costly tests, as CI does")
    parser.add_argument(
        "--full", action="store_true", help="at the end, run all tests for the bugs that were not found"
    )
    parser.add_argument("--pytest", default="", help="additional arguments for pytest, such as '-n 2'")
    given = parser.parse_args()
    chosen = [m for m in MUTATIONS if not given.names or any(word in m.name for word in given.names)]
    for mutation in chosen:
        place_of(mutation, ROOT / _PACKAGE)
    runs = Runs(everything=not given.likely, costly=given.costly, full=given.full)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="rlx-mutate-") as folder:
        copy = Copy(Path(folder), given.pytest.split())
        for mutation in chosen:
            seeds = [int(seed) for seed in given.seeds.split(",")]
            outcomes.append(copy.outcome(mutation, seeds, runs))
            print(outcomes[-1], flush=True)
    sampled = sum(outcome.test is not None and outcome.run != "of all" for outcome in outcomes)
    print(f"{sampled} of {len(outcomes)} found by the sample, {sum(o.test is not None for o in outcomes)} in all")
    return 0 if sampled >= 0.9 * len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
