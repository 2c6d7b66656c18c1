"""The cocotb testbenches of designs and of their wrappers, in Icarus and Verilator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.packages import needs_package
from tests.targets.fpga.test_axi import fast_graph
from tests.targets.fpga.test_projects import small_network, written

pytestmark = [
    needs_package("pycde", "fpga"),
    needs_package("llvmlite", "fpga"),
    pytest.mark.skipif(find_spec("cocotb") is None, reason="cocotb is not installed: pip install 'rlx[dev]'"),
]
# The oldest Verilator that cocotb 2 can be compiled with.
_OLDEST = (5, 36)


def verilator_version() -> tuple[int, ...]:
    """Return the version of Verilator; empty if it is not installed."""
    if shutil.which("verilator") is None:
        return ()
    found = re.search(
        r"Verilator (\d+)\.(\d+)", subprocess.run(["verilator", "--version"], capture_output=True, text=True).stdout
    )
    return () if found is None else tuple(map(int, found.groups()))


def bench(folder: Path, name: str, simulator: str) -> subprocess.CompletedProcess[str]:
    """Run a testbench, or skip the test if the simulator is missing or too old."""
    if simulator == "icarus" and shutil.which("iverilog") is None:
        pytest.skip("iverilog is not installed")
    if simulator == "verilator" and verilator_version() < _OLDEST:
        pytest.skip(f"cocotb 2 needs Verilator 5.036, found {'.'.join(map(str, verilator_version())) or 'none'}")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "COCOTB_TEST_MODULES")}
    command = [sys.executable, f"{name}_cocotb.py"]
    return subprocess.run(
        command, cwd=folder, env={**environment, "SIM": simulator}, capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
@pytest.mark.parametrize(
    ("flags", "tests"), [((), 3), (("--axi=stream", "--axi-width=32"), 3), (("--axi=lite", "--axi-width=64"), 4)]
)
def test_designs_pass(flags: tuple[str, ...], tests: int, simulator: str, tmp_path: Path) -> None:
    """Ports of all widths, a state and partial beats, with and without stalls."""
    written(fast_graph(), tmp_path, *flags)
    done = bench(tmp_path, "fast", simulator)
    assert done.returncode == 0 and f"TESTS={tests} PASS={tests}" in done.stdout, done.stdout[-3000:] + done.stderr


def has_axi_models() -> bool:
    """Whether cocotbext-axi is installed. Other packages are in the namespace `cocotbext`, too."""
    return find_spec("cocotbext") is not None and find_spec("cocotbext.axi") is not None


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="iverilog is not installed")
@pytest.mark.skipif(not has_axi_models(), reason="cocotbext-axi is not installed: pip install 'rlx[dev]'")
def test_independent_models_of_axi_agree(tmp_path: Path) -> None:
    written(fast_graph(), tmp_path, "--axi=lite", "--axi-width=32")
    shutil.copy(Path(__file__).parent / "independent_axi.py", tmp_path)
    command = [sys.executable, "independent_axi.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "TESTS=1 PASS=1" in done.stdout, done.stdout[-3000:] + done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("net__conv1__weights.mem", "\n", "1\n", "y_tvalid: beat"),
        ("net__axi__output.sv", "if (next_ready) tvalid <=", "tvalid <=", "before it was read"),
        ("net__axi__registers.sv", "x_open = free || ", "x_open = 1'b1 || ", "is taken before its start"),
    ],
)
def test_mistakes_are_found(file: str, old: str, new: str, message: str, tmp_path: Path) -> None:
    written(small_network("net"), tmp_path, "--axi=lite")
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new))
    done = bench(tmp_path, "net", "icarus")
    assert done.returncode != 0 and message in done.stdout, done.stdout[-3000:]
