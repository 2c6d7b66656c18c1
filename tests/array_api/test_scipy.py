"""SciPy functions for any array API, on tensors."""

from __future__ import annotations

import os
import subprocess
import sys


def test_scipy_takes_tensors() -> None:
    command = [sys.executable, "-m", "tests.array_api.scipy_functions"]
    done = subprocess.run(command, env={**os.environ, "SCIPY_ARRAY_API": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
