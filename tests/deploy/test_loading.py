"""Files with several programs and with parameters: the right program is chosen, and modified files are refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import random
import shutil
import subprocess
import sysconfig
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES
from rlx.targets.artifacts.archive import MANIFEST, PARAMETERS, Archive
from rlx.targets.artifacts.container import pack_archive
from rlx.targets.iree import cpu
from tests.drawing import drawn
from tools.fuzz.kinds import artifacts as fuzzed

X86 = pytest.mark.skipif(cpu.machine() != "x86_64", reason="it compiles for this machine's architecture and others")


def product(name: str = "product", width: int = 2) -> Any:
    g: Any = rlx.Graph(name)
    g.set_outputs({"y": g.matmul(g.input("x", (1, 4)), g.param("w", (4, width)))})
    return g


W, X = np.arange(8, dtype=np.float32).reshape(4, 2), np.arange(4, dtype=np.float32).reshape(1, 4)


@pytest.fixture(scope="module")
def programs() -> dict[str, rlx.Program]:
    """Return one graph compiled for several targets."""
    made = {arch: rlx.Session(arch=arch).compile(product()) for arch in ("x86-64-v2", "x86-64", "aarch64")}
    made |= {name: rlx.Session(name).compile(product()) for name in ("cuda", "vmvx")}
    made["x86-64-v2"].set_params({"w": W})
    return made


def same(program: rlx.Program, w: np.ndarray = W) -> None:
    np.testing.assert_array_equal(program.run({"x": X})[0], X @ w)


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["inside", "beside"])
def test_values_of_every_dtype_come_back(place: str, tmp_path: Path) -> None:
    """Values equal those of the evaluator to the bit, including NaN, infinities, integer limits, no elements and rank 0."""
    g: Any = rlx.Graph("all")
    rng = np.random.default_rng(3)
    inputs, values, outputs = {}, {}, {}
    for kind in DTYPES:
        for shape in ((3, 5), (0, 5), ()):
            key = f"{kind.name}/{len(shape)}{shape[:1]}"
            codes = 2 if kind.is_bool else 1 << min(kind.bits, 8)
            raw = rng.integers(0, codes, (int(np.prod(shape)), kind.itemsize), dtype=np.uint8)
            values[f"w {key}"] = raw.reshape(-1).view(kind.numpy).reshape(shape)
            w = g.param(f"w {key}", shape, kind)
            if shape == (3, 5):
                inputs[f"x {key}"] = np.ones((2, 5), kind.numpy)
                w = g.concat([g.input(f"x {key}", (2, 5), kind), w], 0)
            outputs[f"y {key}"] = g.reshape(w, (-1,) if shape else (1,))
    g.set_outputs(outputs)
    compiled = rlx.Session().compile(g, params=values)
    compiled.save(tmp_path / "p.rlxa", params=True, params_file=tmp_path / "p.irpa" if place == "beside" else None)
    loaded = rlx.deploy.load(tmp_path / "p.rlxa", threads=1)
    expected = rlx.evaluate(g, {**inputs, **values})
    for name, array, wanted in zip(loaded.output_names, loaded.run(inputs), expected, strict=True):
        assert array.dtype == wanted.dtype and array.tobytes() == wanted.tobytes(), name


def test_parameters_are_mapped_where_compiled_code_can_use_them(
    programs: dict[str, rlx.Program], tmp_path: Path
) -> None:
    for file in (None, tmp_path / "w.irpa"):
        programs["x86-64-v2"].save(tmp_path / "p.rlxa", params=True, params_file=file)
        archive = Archive.load(tmp_path / "p.rlxa")
        assert archive.parameters is not None
        (array,) = archive.parameters.arrays(archive.signature, archive.folder).values()
        assert not array.flags.writeable and array.__array_interface__["data"][0] % 64 == 0
        owner: Any = array
        while not isinstance(owner, mmap.mmap):
            owner = owner.obj if isinstance(owner, memoryview) else owner.base
        np.testing.assert_array_equal(array, W)


def test_parameters_beside_a_file_are_those_it_was_written_with(
    programs: dict[str, rlx.Program], tmp_path: Path
) -> None:
    path, beside = tmp_path / "p.rlxa", tmp_path / "w.irpa"
    programs["x86-64-v2"].save(path, params_file=beside)
    same(rlx.load(path))
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.move(path, moved)
    with pytest.raises(rlx.Error, match=r"w\.irpa, which is no file.*\n.*put it there"):
        rlx.load(moved / "p.rlxa")
    same(rlx.load(moved / "p.rlxa", params={"w": 2 * W}), 2 * W)  # it is not needed then
    data = beside.read_bytes()
    for other in (data[:-1], data + b"x", data[:448] + b"x" + data[449:], b""):
        (moved / "w.irpa").write_bytes(other)
        with pytest.raises(rlx.Error, match=r"w.irpa (is damaged, or another one|has \d+ bytes instead of)"):
            rlx.load(moved / "p.rlxa")
    shutil.copyfile(beside, moved / "w.irpa")
    same(rlx.load(moved / "p.rlxa"))


def test_parameters_that_are_given_come_before_those_of_the_file(
    programs: dict[str, rlx.Program], tmp_path: Path
) -> None:
    programs["x86-64-v2"].save(tmp_path / "p.rlxa", params=True)
    np.savez(tmp_path / "w.npz", w=3 * W)
    for given in ({"w": 3 * W}, tmp_path / "w.npz"):
        same(rlx.load(tmp_path / "p.rlxa", params=given), 3 * W)


# --- choice of the program ------------------------------------------------------------------------

CHOICES = [
    ("", None, "cpu (x86-64-v2)"),
    ("x86-64-v2", None, "cpu (x86-64-v2)"),
    ("x86-64", None, "cpu (x86-64)"),
    ("aarch64", None, "cpu (aarch64)"),
    ("riscv64", None, "vmvx (default)"),
    ("x86-64", "vmvx", "vmvx (default)"),
    ("", "cuda", "cuda (sm_80)"),
]


@X86
@pytest.mark.parametrize(("level", "target", "expected"), CHOICES)
def test_the_program_for_a_machine(
    level: str, target: str | None, expected: str, programs: dict[str, rlx.Program], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """In the file, the baseline comes before the tuned program, and an unavailable device before both."""
    if level == "" and not (cpu.host_cpu() or frozenset()) >= cpu._features_of("x86-64-v2"):
        pytest.skip("this machine's CPU is of the first level")
    monkeypatch.setenv("RLX_CPU_LEVEL", level)
    monkeypatch.setattr("rlx.targets.iree.program.device", absent)
    names = ("cuda", "x86-64", "aarch64", "x86-64-v2", "vmvx")
    first, *others = (programs[name] for name in names)
    first.set_params({"w": W})
    first.save(tmp_path / "p.rlxa", *others, params=True)
    chosen = rlx.deploy.load(tmp_path / "p.rlxa", target=target)
    assert f"{chosen.artifact.target} ({chosen.artifact.arch})" == expected
    if expected != "cuda (sm_80)" and "aarch64" not in expected:
        same(chosen)


def absent(driver: str) -> None:
    if driver == "cuda":
        raise rlx.ExecutionError("there is no such device")


@X86
def test_a_foreign_machine(programs: dict[str, rlx.Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs["x86-64-v2"].save(tmp_path / "p.rlxa", programs["x86-64"], params=True)
    monkeypatch.setenv("RLX_CPU_LEVEL", "aarch64")
    with pytest.raises(rlx.ExecutionError) as caught:
        rlx.deploy.load(tmp_path / "p.rlxa")
    assert str(caught.value).count("this machine is aarch64 (RLX_CPU_LEVEL is aarch64), not x86_64") == 2
    assert "--also=cpu:aarch64" in str(caught.value)
    with pytest.raises(rlx.Error, match=r"no program for 'vulkan'.*\n.*cpu \(x86-64-v2\), cpu \(x86-64\)"):
        rlx.deploy.load(tmp_path / "p.rlxa", target="vulkan")
    programs["x86-64-v2"].save(tmp_path / "one.rlxa", params=True)
    for level, reason in (("aarch64", "this machine is aarch64"), ("x86-64", "lacks cx16, popcnt")):
        monkeypatch.setenv("RLX_CPU_LEVEL", level)
        with pytest.raises(rlx.ExecutionError, match=rf"(?s){reason}.*--arch={level}`.*or unset RLX_CPU_LEVEL"):
            rlx.deploy.load(tmp_path / "one.rlxa")
    monkeypatch.setenv("RLX_CPU_LEVEL", "x86-64-v9")
    with pytest.raises(rlx.ExecutionError, match=r"RLX_CPU_LEVEL is one of x86-64, .*, not 'x86-64-v9'"):
        rlx.deploy.load(tmp_path / "one.rlxa")


def test_the_file_of_another_cpu_is_refused_before_it_runs(programs: dict[str, rlx.Program], tmp_path: Path) -> None:
    programs["aarch64"].save(tmp_path / "one.rlxa")
    if cpu.machine() == "aarch64":
        rlx.load(tmp_path / "one.rlxa")
        return
    with pytest.raises(rlx.ExecutionError, match=rf"this machine is {cpu.machine()}, not aarch64") as caught:
        rlx.load(tmp_path / "one.rlxa")
    assert "RLX_CPU_LEVEL" not in str(caught.value)


@pytest.mark.parametrize(
    ("level", "host", "advice"),
    [("x86-64-v2", "x86-64-v4", "x86-64-v2"), ("x86-64-v4", "x86-64-v3", "x86-64-v3"), ("x86_64", "x86-64-v3", "x86-64-v3"),
     ("", "x86-64-v2", "x86-64-v2"), ("aarch64", "x86-64-v4", "aarch64")],
)  # fmt: skip
def test_the_advised_level_runs_here(level: str, host: str, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CPU_LEVEL", level)
    monkeypatch.setattr(cpu, "machine", lambda: "x86_64")
    monkeypatch.setattr(cpu, "host_cpu", lambda: frozenset(cpu._features_of(host)))
    assert cpu.advice() == advice


def test_what_cannot_be_in_one_file(programs: dict[str, rlx.Program], tmp_path: Path) -> None:
    program, path = programs["x86-64-v2"], tmp_path / "p.rlxa"
    wider = rlx.Session().compile(product(width=3))
    cases: list[tuple[Any, str]] = [
        (lambda: program.save(path, wider), "take or give something else"),
        (lambda: program.save(path, program), r"two programs for cpu \(x86-64-v2\)"),
        (lambda: program.save(path, product()), "expected a compiled program, got Graph"),
        (lambda: wider.save(path, params=True), "1 parameters are not set: 'w'"),
        (lambda: program.save(path, params_file=tmp_path / "p.rlxa"), "is the file of the program"),
        (lambda: program.save(path, params_file=tmp_path / "a" / "p.irpa"), "must be in the same folder"),
        (lambda: program.save(path, params_file=""), "expected the path of a file"),
    ]
    for call, message in cases:
        with pytest.raises(rlx.Error, match=message):
            call()
    assert not list(tmp_path.iterdir())
    for wrong in (7, "", "no such"):
        program.save(path)
        with pytest.raises(rlx.Error):
            rlx.deploy.load(path, target=wrong)  # type: ignore[arg-type]


def test_two_files_are_written_or_none(programs: dict[str, rlx.Program], tmp_path: Path) -> None:
    """The file of weights is never the file of the program, and neither changes if the other cannot be written."""
    program, path, beside = programs["x86-64-v2"], tmp_path / "p.rlxa", tmp_path / "p.irpa"
    program.save(path, params_file=beside)
    before = path.read_bytes(), beside.read_bytes()
    (tmp_path / "symbolic.irpa").symlink_to(path)
    (tmp_path / "hard.irpa").hardlink_to(path)
    (tmp_path / "link.rlxa").symlink_to(beside)
    (tmp_path / "folder").mkdir()
    other = rlx.load(path)
    other.set_param("w", W * 2)
    cases = [
        (path, tmp_path / "symbolic.irpa", "is the file of the program"),
        (path, tmp_path / "hard.irpa", "is the file of the program"),
        (tmp_path / "link.rlxa", beside, "is the file of the program"),
        (tmp_path / "folder", beside, "cannot write"),
        (path, tmp_path / "folder", "cannot write"),
    ]
    for file, params_file, message in cases:
        with pytest.raises(rlx.Error, match=message):
            other.save(file, params_file=params_file)
        assert (path.read_bytes(), beside.read_bytes()) == before
    same(rlx.load(path))
    assert not [p for p in tmp_path.iterdir() if "partial" in p.name]


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(programs: dict[str, rlx.Program], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "p.rlxa"
    programs["x86-64-v2"].save(path, programs["vmvx"], programs["aarch64"], params=True)
    return path.read_bytes()


def test_a_file_is_the_same_each_time(whole: bytes) -> None:
    archive = Archive.from_bytes(whole)
    assert archive.to_bytes() == whole
    assert [(p.target, p.arch) for p in archive.entry().programs][1:] == [("vmvx", "default"), ("cpu", "aarch64")]
    document, others = fuzzed.members(whole)
    assert list(others)[-1] == PARAMETERS and len(others) == 4
    assert fuzzed.sealed(document, others) == document


@drawn("part", range(8))
def test_any_bit_of_any_member(part: int, whole: bytes, seed: int) -> None:
    rng = random.Random(f"{seed} {part}")
    _, others = fuzzed.members(whole)
    for data in others.values():
        start = whole.index(data)
        for _ in range(12):
            position = start + rng.randrange(len(data))
            damaged = bytearray(whole)
            damaged[position] ^= 1 << rng.randrange(8)
            with pytest.raises(rlx.Error, match="is damaged, or another one"):
                Archive.from_bytes(bytes(damaged))
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with contextlib.suppress(rlx.Error):  # no error if only a date or padding is damaged
            assert Archive.from_bytes(bytes(damaged)).to_bytes() == whole
        with pytest.raises(rlx.Error):
            Archive.from_bytes(whole[: rng.randrange(len(whole))])


def test_members_that_the_manifest_does_not_have(whole: bytes) -> None:
    document, others = fuzzed.members(whole)

    def archive(document: Any, others: dict[str, bytes]) -> bytes:
        return pack_archive({MANIFEST: json.dumps(fuzzed.sealed(document, others)).encode(), **others})

    first, *_ = others
    cases = {
        "one more": {**others, "more": b""},
        "one less": {n: d for n, d in others.items() if n != first},
        "no parameters": {n: d for n, d in others.items() if n != PARAMETERS},
        "other names": {f"{n}x": d for n, d in others.items()},
        "another order": dict(reversed(others.items())),
    }
    for name, members in cases.items():
        with pytest.raises(rlx.Error, match="its members are not the programs that its manifest has"):
            print(name, Archive.from_bytes(archive(dict(document), members)))
    for key, value, message in (
        ("offset", 32, "multiple of 64"),
        ("offset", 1 << 40, "lies outside"),
        ("sizes", [4, 3], "the parameter is f32"),
        ("file", "../w.irpa", "the name of a file in the same folder"),
        ("file", "C:w.irpa", "the name of a file in the same folder"),
        ("size", 8, "outside"),
        ("sha256", "0" * 64, "its checksum is not the one"),
    ):
        changed = json.loads(json.dumps(document))
        parameters = changed["parameters"]
        if key in ("offset", "sizes"):
            parameters["places"]["w"][("offset", "sizes").index(key)] = value
        else:
            parameters[key] = value
        with pytest.raises(rlx.Error, match=message):
            Archive.from_bytes(archive(changed, others))


# --- threads and processes ------------------------------------------------------------------------


def test_many_load_and_run_while_one_writes(programs: dict[str, rlx.Program], tmp_path: Path) -> None:
    """A reader always sees a complete file: the old one or the new one."""
    path, program = tmp_path / "p.rlxa", programs["x86-64-v2"]
    program.save(path, params=True)
    problems: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                same(rlx.deploy.load(path, threads=1))
        except BaseException as problem:
            problems.append(problem)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(12):
        program.save(path, *[programs["vmvx"]] * (turn % 2), params=True)
    stop.set()
    for reader in readers:
        reader.join(30)
    assert not problems
    assert [p.name for p in tmp_path.iterdir()] == ["p.rlxa"]


# --- IREE's own tools -----------------------------------------------------------------------------


@X86
def test_iree_runs_the_members(whole: bytes, tmp_path: Path) -> None:
    tool = Path(sysconfig.get_path("scripts"), "iree-run-module")
    if not tool.exists():
        pytest.skip("IREE's tools are not installed")
    _, others = fuzzed.members(whole)
    (tmp_path / "model.vmfb").write_bytes(next(iter(others.values())))
    (tmp_path / "model.irpa").write_bytes(others[PARAMETERS])
    command = [
        tool,
        "--module=model.vmfb",
        "--parameters=model=model.irpa",
        "--function=product",
        "--device=local-sync",
    ]
    out = subprocess.run(
        [*command, "--input=1x4xf32=0,1,2,3"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "1x2xf32=[28 34]" in out.stdout


def test_the_hash_is_that_of_the_file(whole: bytes, tmp_path: Path) -> None:
    (tmp_path / "p.rlxa").write_bytes(whole)
    right = hashlib.sha256(whole).hexdigest()
    same(rlx.deploy.load(tmp_path / "p.rlxa", target="cpu", expected_sha256=right.upper()))
    with pytest.raises(rlx.Error, match="another file than expected"):
        rlx.deploy.load(tmp_path / "p.rlxa", expected_sha256="0" * 64)
