"""The list of costly tests is made from what pytest measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.costly_tests import listing, measured

_TESTS = """
import time, pytest

@pytest.mark.parametrize("seconds", [0.0, 0.8])
def test_of_two_cases(seconds): time.sleep(seconds)

def test_quick(): pass
"""


def test_means_of_cases_are_listed(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_times.py").write_text(_TESTS)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "--junitxml", "times.xml"]
    subprocess.run([sys.executable, *words, "tests"], cwd=tmp_path, check=True, capture_output=True)
    times = measured(tmp_path / "times.xml")
    assert sorted(map(len, times.values())) == [1, 2]
    lines = [line for line in listing(times).splitlines() if not line.startswith("#")]
    assert lines == ["tests/test_times.py::test_of_two_cases 0.4"]
