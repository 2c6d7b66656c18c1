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
# The oldest Verilator that cocotb 2 can be compiled with, and the last version of cocotb that supports older ones.
_OLDEST = (5, 36)
_OLDER_COCOTB = "cocotb==1.9.2"
# cocotb 1.9 chooses the file of results itself if pytest's variable is set.
_UNSET = ("PYTHONPATH", "COCOTB_TEST_MODULES", "PYTEST_CURRENT_TEST")


def verilator_version() -> tuple[int, ...]:
    """Return the version of Verilator; empty if it is not installed."""
    if shutil.which("verilator") is None:
        return ()
    found = re.search(
        r"Verilator (\d+)\.(\d+)", subprocess.run(["verilator", "--version"], capture_output=True, text=True).stdout
    )
    return () if found is None else tuple(map(int, found.groups()))


@pytest.fixture(scope="module")
def older_cocotb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cocotb 1.9, from the package index that pip is configured for."""
    if shutil.which("verilator") is None:
        pytest.skip("verilator is not installed")
    folder = tmp_path_factory.mktemp("cocotb")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--retries=0", "--timeout=20"]
    command += ["--disable-pip-version-check", f"--target={folder}", _OLDER_COCOTB]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"pip cannot install {_OLDER_COCOTB}: {done.stderr.strip()[-300:]}")
    return folder


def bench(folder: Path, name: str, simulator: str, packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a testbench, or skip the test if the simulator is missing or too old.

    Args:
        folder: The folder of the design.
        name: The name of the design.
        simulator: `icarus` or `verilator`.
        packages: A folder with another version of cocotb.
    """
    if simulator == "icarus" and shutil.which("iverilog") is None:
        pytest.skip("iverilog is not installed")
    if simulator == "verilator" and packages is None and verilator_version() < _OLDEST:
        pytest.skip(f"cocotb 2 needs Verilator 5.036, found {'.'.join(map(str, verilator_version())) or 'none'}")
    environment = {k: v for k, v in os.environ.items() if k not in _UNSET}
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
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


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_designs_pass_with_the_older_cocotb(simulator: str, older_cocotb: Path, tmp_path: Path) -> None:
    """The Verilator of Debian 12 is supported by cocotb 1.9."""
    written(fast_graph(), tmp_path, "--axi=lite", "--axi-width=64")
    done = bench(tmp_path, "fast", simulator, older_cocotb)
    assert done.returncode == 0 and "TESTS=4 PASS=4" in done.stdout, done.stdout[-3000:] + done.stderr
    assert "cocotb v1.9" in done.stdout


def test_the_older_cocotb_finds_mistakes(older_cocotb: Path, tmp_path: Path) -> None:
    written(small_network("net"), tmp_path)
    file = tmp_path / "net_tb_y.mem"
    first, *others = file.read_text().splitlines()
    file.write_text("\n".join([f"{int(first, 16) ^ 1:x}", *others, ""]))
    done = bench(tmp_path, "net", "verilator", older_cocotb)
    assert done.returncode != 0 and "y_valid: beat 0" in done.stdout, done.stdout[-3000:]


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
