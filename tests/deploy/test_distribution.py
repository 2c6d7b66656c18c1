"""`rlx-deploy`: its wheel contains the files that running a program needs, and runs one without the rest of RLX."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import textwrap
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.version import __version__
from tools.deploy_wheel import PROJECT, ROOT, build, imported, module_file, modules

# Modules outside of the distribution that its functions import, and why these functions are not called to run a
# program.
LATER_ALONE = {
    ("rlx.targets.iree.targets", "rlx.targets.iree.pipeline"): "the pipeline of a target",
    ("rlx.ir.shape", "rlx.mlir"): "types of MLIR",
    ("rlx.runtime.program", "rlx.ir.graph.listing"): "a program that was compiled here",
    ("rlx.runtime.program", "rlx.runtime.profiling"): "a program that was compiled here",
    ("rlx.runtime.display", "rlx.report.html"): "it is looked for first",
    ("rlx.targets.iree.lapack", "rlx.kernels.routines"): "programs in files do not call LAPACK",
}
# Packages that must not be imported: MLIR's bindings, compilers, and libraries for compiling or importing.
BLOCKED = (
    "torch_mlir",
    "mlir",
    "jax",
    "jaxlib",
    "onnx",
    "safetensors",
    "iree.compiler",
    "rlx.mlir",
    "rlx.passes",
    "rlx.targets.lowering",
)
BLOCKER = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if any(name == blocked or name.startswith(blocked + ".") for blocked in {BLOCKED!r}):
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocker())
"""
PROGRAM = """
import json, numpy as np, rlx
program = rlx.deploy.load(sys.argv[1], threads=1)
x = np.arange(12, dtype=np.float32).reshape(3, 4)
first, second = program.run_named({"x": x}), program.run({"x": x})
assert program.state("count").tolist() == [9] * 4
assert "scaled" in repr(program) and program.run_async({"x": x}).result()[0].shape == (3, 2)
try:
    program.run({"x": x[:, :3]})
except rlx.Error as problem:
    refused = str(problem)
try:
    program.cost()
except rlx.Error as problem:
    refused += str(problem)
imported = sorted(name for name in sys.modules if name.startswith(("torch_mlir", "jax", "iree.compiler", "rlx.mlir")))
print(json.dumps([first["y"].tolist(), second[1].tolist(), refused, imported]))
"""


def saved(path: Path) -> Path:
    """Write a program with a parameter, a symbol and a state."""
    g = rlx.Graph("scaled")
    x, w, count = g.input("x", ("n", 4)), g.param("w", (4, 2)), g.state("count", (4,), "i32", init=7)
    g.update(count, count + 1)
    g.set_outputs({"y": g.matmul(x, w), "count": count})
    w_value = np.arange(8, dtype=np.float32).reshape(4, 2)
    rlx.Session(arch="x86-64-v2" if sys.platform == "linux" and os.uname().machine == "x86_64" else None).compile(
        g, params={"w": w_value}
    ).save(path, params=True)
    return path


def check(output: str) -> None:
    y, count, refused, imported = json.loads(output)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(y, x @ np.arange(8, dtype=np.float32).reshape(4, 2))
    assert count == [8] * 4
    assert "input 'x' must be f32[n, 4], got float32[3, 3]" in refused
    assert "a program from a file does not say what it was made of" in refused
    assert not imported


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, f"{command}\n{process.stdout}\n{process.stderr}"
    return process.stdout


def test_the_whole_package_runs_programs_without_a_compiler_as_well(tmp_path: Path) -> None:
    check(run(sys.executable, "-c", BLOCKER + PROGRAM, saved(tmp_path / "p.rlxa"), cwd=tmp_path))


def test_what_functions_import_later_is_there_or_not_needed() -> None:
    files = modules()
    missing = {
        (name, other)
        for name, file in files.items()
        for other in imported(file, later=True)
        if other.partition(".")[0] == "rlx" and module_file(other) and other not in files
    }
    assert missing == set(LATER_ALONE)


def test_the_page_counts_the_modules() -> None:
    assert f"{len(modules())} modules" in (ROOT / "docs/deployment.md").read_text()


def test_the_requirements_are_those_of_the_whole_package() -> None:
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    part = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert set(part["dependencies"]) < set(whole["dependencies"])
    assert set(part["optional-dependencies"]["safetensors"]) < set(whole["dependencies"])
    assert part["requires-python"] == whole["requires-python"]


def test_the_wheel_runs_a_program_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """The environment has the wheel, and links to this environment's NumPy, ml_dtypes and IREE runtime."""
    wheel = build(tmp_path / "dist")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert wheel.name == f"rlx_deploy-{__version__}-py3-none-any.whl"
    assert {n for n in names if ".dist-info" not in n} == {
        str(f.relative_to(ROOT / "python")) for f in modules().values()
    }
    assert wheel.stat().st_size < 400_000
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    if not python.exists():
        pytest.skip("environments have another layout here")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, "--no-deps", "--no-index", wheel, cwd=tmp_path)
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    here = Path(sysconfig.get_path("purelib"))
    (packages / "iree").mkdir()
    for found in here.joinpath("iree").iterdir():
        if "runtime" in found.name:
            (packages / "iree" / found.name).symlink_to(found)
    for found in (*here.glob("numpy*"), *here.glob("ml_dtypes*"), *here.glob("iree_base_runtime*")):
        (packages / found.name).symlink_to(found)
    check(run(python, "-c", "import sys\n" + PROGRAM, saved(tmp_path / "p.rlxa"), cwd=tmp_path))
    output = run(
        environment / "bin" / "rlx-run", tmp_path / "p.rlxa", "--input=x=2x4xf32=1", "--save=y=y.npy", cwd=tmp_path
    )
    assert "y: f32[2, 2]\n[[12. 16.]\n [12. 16.]]" in output and "count: i32[4]" in output
    assert np.load(tmp_path / "y.npy").tolist() == [[12, 16]] * 2
    lacking = """
        import rlx
        for name in ("Graph", "jit", "nn"):
            try:
                getattr(rlx, name)
            except AttributeError as problem:
                print(problem)
    """
    told = run(python, "-c", textwrap.dedent(lacking), cwd=tmp_path)
    assert told.count("this is rlx-deploy, which only runs compiled programs (install rlx itself)") == 3
