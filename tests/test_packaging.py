"""The wheel: its contents, and its use in a separate environment outside of the checkout.

The build takes scikit-build-core and pybind11 from the running environment instead of downloading them. The new
environment sees the running one's site-packages, after its own, for numpy and the other dependencies. So these tests
need no network. `make` tests that the requirements in pyproject.toml are complete.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from rlx.version import __version__
from tools.fetch_minilm import exclusive

ROOT = Path(__file__).resolve().parents[1]
DATA_SUFFIXES = {".mlir", ".json", ".typed", ".pyi", ".txt", ".html"}


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without this checkout's environment variables, and return its standard output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, f"{command}\n{process.stdout}\n{process.stderr}"
    return process.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built once for all of pytest's workers."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with exclusive(folder / "wheel.lock"):
        if not list(folder.glob("dist/*.whl")):
            pip = [
                sys.executable,
                "-m",
                "pip",
                "wheel",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
            ]
            # Without optimisation, which takes a third of the time. Speed does not matter here.
            build = ["--no-build-isolation", "-C", f"build-dir={folder / 'build'}", "-C", "cmake.build-type=Debug"]
            run(*pip, *build, "--wheel-dir", folder / "dist", ROOT, cwd=folder)
    (path,) = folder.glob("dist/*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new environment's folder of programs, with the wheel installed."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", programs / "python", "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    site_packages = run(programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    Path(site_packages.strip(), "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_wheel_holds_one_native_module_and_the_mark_of_a_typed_package(wheel: Path) -> None:
    natives = [name for name in names_in(wheel) if Path(name).suffix in {".so", ".pyd"}]
    assert natives == [f"rlx/_native{sysconfig.get_config_var('EXT_SUFFIX')}"]
    assert "rlx/py.typed" in names_in(wheel)


def test_wheel_holds_every_source_and_data_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "python" / "rlx"
    files = [p for p in package.rglob("*") if p.suffix in {".py"} | DATA_SUFFIXES and "__pycache__" not in p.parts]
    expected = {f"rlx/{path.relative_to(package).as_posix()}" for path in files}
    assert expected
    assert expected <= set(names_in(wheel))


def test_wheel_holds_nothing_else(wheel: Path) -> None:
    strangers = []
    for name in names_in(wheel):
        top, *rest = name.split("/")
        if top == f"rlx-{__version__}.dist-info":
            continue
        known_suffix = Path(name).suffix in {".py", ".so", ".pyd"} | DATA_SUFFIXES
        if top != "rlx" or not known_suffix or {"tests", "build", "__pycache__", "CMakeFiles"} & set(rest):
            strangers.append(name)
    assert strangers == []


def test_wheel_metadata_is_that_of_the_project(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"rlx-{__version__}.dist-info/METADATA").decode()
        entry_points = archive.read(f"rlx-{__version__}.dist-info/entry_points.txt").decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert f"\nRequires-Python: {project['requires-python']}\n" in metadata
    required = set(re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", metadata, re.MULTILINE))
    wanted = {re.match(r"[\w-]+", line).group() for line in project["dependencies"]}  # type: ignore[union-attr]
    assert {name.replace("_", "-") for name in required} == {name.replace("_", "-") for name in wanted}
    assert set(entry_points.split()) >= {"rlx-opt", "rlx", "rlx-run", "rlx.cli.main:main", "rlx.cli.opt:main"}


def test_import_from_elsewhere(environment: Path, tmp_path: Path) -> None:
    program = "import rlx; print(rlx.__version__); print(rlx.__file__)"
    version, file = run(environment / "python", "-c", program, cwd=tmp_path).splitlines()
    assert version == __version__
    assert Path(file).is_relative_to(environment.parent)


def test_tick_is_native(environment: Path, tmp_path: Path) -> None:
    program = "import rlx; t = rlx.Tick.now(); print(t.elapsed_ns() >= 0, rlx.Tick.source)"
    assert re.fullmatch(r"True (rdtsc|cntvct|steady_clock)\n", run(environment / "python", "-c", program, cwd=tmp_path))


@pytest.mark.parametrize("program", ["rlx", "rlx-opt", "rlx-run"])
def test_console_script_tells_the_version(environment: Path, tmp_path: Path, program: str) -> None:
    assert __version__ in run(environment / program, "--version", cwd=tmp_path)
