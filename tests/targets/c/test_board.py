"""`examples/firmware`: two networks in one firmware, built by GCC for Arm and run by QEMU as a Cortex-M4."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx

EXAMPLE = Path(__file__).parents[3] / "examples" / "firmware"
TOOLS = ("arm-none-eabi-gcc", "cmake", "qemu-system-arm")
pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)}")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300, check=False)


def scores(graph: Any, name: str, period: int, half: float) -> list[float]:
    """The scores for the numbers that `main.c` computes."""
    (entry,) = graph.inputs
    known = rlx.quantizations(graph)
    steps = (np.arange(int(np.prod(entry.shape.static))) % period).astype(np.float32) / np.float32(half) - np.float32(1)
    integers = known[name].quantize(steps).reshape(entry.shape.static)
    return known["scores"].dequantize(rlx.evaluate(graph, {name: integers})[0]).reshape(-1).tolist()


def test_two_networks_run_on_a_board(tmp_path: Path) -> None:
    spec: Any = importlib.util.spec_from_file_location("networks", EXAMPLE / "networks.py")
    networks: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(networks)
    graphs = networks.write(tmp_path / "networks")
    toolchain = "-DCMAKE_TOOLCHAIN_FILE=board/toolchain.cmake"
    configured = run("cmake", "-S", EXAMPLE, "-B", tmp_path / "build", f"-DNETWORKS={tmp_path / 'networks'}", toolchain)
    assert configured.returncode == 0, configured.stderr
    built = run("cmake", "--build", tmp_path / "build", "--target", "run")
    printed = built.stdout + built.stderr  # QEMU prints to the second
    assert built.returncode == 0 and "self-tests passed" in printed, printed
    for name, expected in (
        ("motion", scores(graphs["motion"], "samples", 17, 8)),
        ("sound", scores(graphs["sound"], "spectrogram", 31, 15)),
    ):
        shown = re.search(rf"^{name}: (.*)$", printed, re.MULTILINE)
        assert shown and [float(text) for text in shown[1].split()] == pytest.approx(expected, abs=6e-4)
    vectors = tmp_path / "networks" / "sound_test.c"
    wrong = re.sub(r"(expected_best\[3\]\[1\] = \{\n    \{)", r"\g<1>1", vectors.read_text())
    vectors.write_text(wrong)
    broken = run("cmake", "--build", tmp_path / "build", "--target", "run")
    assert broken.returncode != 0 and "a self-test failed" in broken.stdout + broken.stderr
