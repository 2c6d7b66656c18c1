"""CPU features: required features are recorded, and code that this machine's CPU cannot run is rejected before loading."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.iree import cpu
from rlx.targets.iree.cpu import Cpu

V1: frozenset[str] = frozenset()
V2 = V1 | {"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
V3 = V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}
V4 = V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
LEVELS = {"x86-64": V1, "x86-64-v2": V2, "x86-64-v3": V3, "x86-64-v4": V4}


def compiled_for(arch: str | None = None, *flags: str) -> Artifact:
    g: Any = rlx.Graph("needy")
    g.set_outputs([g.relu(g.input("x", (4,)))])
    return rlx.Session(arch=arch, flags=flags).compile(g, cache=False).artifact


def load_and_run(artifact: Artifact) -> np.ndarray:
    from rlx.runtime.program import Program

    return Program(artifact).run({"x": np.array([-1, 0, 1, 2], np.float32)})[0]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the properties of this machine: an architecture, its features, and a hash."""

    def pretend(architecture: str, features: frozenset[str] | None) -> None:
        monkeypatch.setattr(cpu, "sys", SimpleNamespace(platform="linux"))
        monkeypatch.setattr(cpu, "machine", lambda: architecture)
        monkeypatch.setattr(cpu, "host_cpu", lambda: features)
        monkeypatch.setattr(cpu, "host_features", lambda: "another")

    return pretend


@pytest.mark.parametrize("arch", LEVELS)
def test_code_for_a_level_needs_that_level(arch: str) -> None:
    needs = Cpu.from_json(compiled_for(arch).info["cpu"])
    assert (needs.architecture, needs.name, needs.level, str(needs)) == ("x86_64", arch, arch, arch)
    assert needs.features >= LEVELS[arch]
    assert not needs.host


def test_code_for_this_machine_needs_what_it_has() -> None:
    artifact = compiled_for()
    needs = Cpu.from_json(artifact.info["cpu"])
    assert needs.architecture == cpu.machine()
    assert needs.lacks() is None
    assert load_and_run(artifact).tolist() == [0, 0, 1, 2]
    present = cpu.host_cpu()
    if present is not None and cpu.machine() == "x86_64":
        assert needs.level == cpu.host_level()
        assert present >= LEVELS[needs.level]


@pytest.mark.parametrize(
    ("arch", "flags", "features", "lacks", "advice"),
    [
        ("x86-64-v3", (), V2, "avx, avx2, bmi, bmi2, f16c, fma, lzcnt, movbe", "x86-64-v2"),
        ("x86-64-v3", (), V1, "avx, avx2, .*sse3", "x86-64'"),
        ("x86-64-v3", (), V3 - {"fma"}, "fma$", "x86-64-v2"),
        ("x86-64-v4", (), V3, "avx512bw, avx512cd, avx512dq, avx512f, avx512vl$", "x86-64-v3"),
        (None, ("--iree-llvmcpu-target-cpu=znver4",), V4, "avx512bf16, .*sse4a", "x86-64-v4"),
        ("x86-64-v2", ("--iree-llvmcpu-target-cpu-features=+avx2",), V2, "avx2$", "x86-64-v2"),
    ],
)
def test_code_that_this_cpu_cannot_run_is_refused(
    machine: Any, arch: str | None, flags: tuple[str, ...], features: frozenset[str], lacks: str, advice: str
) -> None:
    artifact = Artifact.from_bytes(compiled_for(arch, *flags).to_bytes())
    machine("x86_64", features)
    with pytest.raises(rlx.ExecutionError, match="needy is compiled for the CPU") as caught:
        load_and_run(artifact)
    assert caught.value.hint is not None and advice in caught.value.hint
    assert re.search(f"this machine's CPU lacks .*{lacks}", caught.value.message)


def test_code_for_another_architecture_is_refused() -> None:
    foreign = compiled_for("aarch64" if cpu.machine() == "x86_64" else "x86-64")
    with pytest.raises(rlx.ExecutionError, match=rf"this machine is {cpu.machine()}, not"):
        load_and_run(foreign)


def test_what_the_system_does_not_tell_is_no_reason_to_refuse(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = compiled_for()
    monkeypatch.setattr(cpu, "host_cpu", lambda: frozenset())  # a system older than the CPU; the hash is equal
    assert load_and_run(artifact).tolist() == [0, 0, 1, 2]
    machine(cpu.machine(), None)
    assert load_and_run(artifact).tolist() == [0, 0, 1, 2]


def test_programs_for_other_devices_need_no_cpu() -> None:
    g: Any = rlx.Graph("needy")
    g.set_outputs([g.relu(g.input("x", (4,)))])
    assert rlx.Session("cuda").compile(g, cache=False).artifact.info["cpu"] is None


def test_what_iree_says_of_a_target() -> None:
    config = '{cpu = "rocketlake", cpu_features = "+avx,+pku,-sse4a,+avx2,-pku", target_triple = "x86_64-unknown-elf"}'
    found = Cpu.of_ir(f'util.global #hal.executable.target<"llvm-cpu", "embedded-elf-x86_64", {config}>', "hash")
    assert found == Cpu("x86_64", "rocketlake", frozenset({"avx", "avx2"}), "hash")
    plain = Cpu.of_ir('#hal.executable.target<"llvm-cpu", "e", {target_triple = "arm64-apple-darwin"}>')
    assert plain == Cpu("aarch64", "generic", frozenset())
    assert Cpu.of_ir('#hal.executable.target<"cuda", "cuda-nvptx-fb", {}>') is None


@pytest.mark.parametrize("data", [[], 3, {}, {"architecture": 1}, "x86_64", {"features": "avx"}])
def test_a_damaged_record_is_an_error(data: Any) -> None:
    whole = {"architecture": "x86_64", "name": "x", "features": ["avx"], "host": ""}
    assert Cpu.from_json(whole).to_json() == whole
    for damaged in (data, whole | {"features": [1]}, whole | {"features": None}, whole | {"name": 2}):
        with pytest.raises(rlx.Error, match=r"^cpu"):
            Cpu.from_json(damaged)


@pytest.mark.parametrize(
    ("system", "architecture", "text", "features"),
    [
        ("linux", "x86_64", "processor: 0\nflags\t\t: fpu pni ssse3 abm avx512_bf16 bmi1\nbugs: avx2\n\n",
         {"sse3", "ssse3", "lzcnt", "avx512bf16", "bmi"}),
        ("linux", "aarch64", "processor: 0\nFeatures\t: fp asimd atomics asimddp\n", {"fp-armv8", "neon", "lse", "dotprod"}),
        ("linux", "x86_64", "processor: 0\n", None),
        ("darwin", "aarch64", "hw.optional.arm.FEAT_LSE: 1\nhw.optional.arm.FEAT_BF16: 0\nhw.optional.arm.FEAT_DotProd: 1\n",
         {"lse", "dotprod"}),
        ("win32", "x86_64", "", None),
        ("linux", "loongarch64", "flags: lsx\n", None),
    ],
)  # fmt: skip
def test_what_systems_tell(
    monkeypatch: pytest.MonkeyPatch, system: str, architecture: str, text: str, features: set[str] | None
) -> None:
    monkeypatch.setattr(cpu, "sys", SimpleNamespace(platform=system))
    monkeypatch.setattr(cpu, "os", SimpleNamespace(name="nt" if system == "win32" else "posix"))
    monkeypatch.setattr(cpu, "machine", lambda: architecture)
    monkeypatch.setattr(cpu.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=text))
    monkeypatch.setattr(cpu, "open", lambda *_, **__: io.StringIO(text), raising=False)
    found = cpu.host_cpu.__wrapped__()
    assert found == (None if features is None else frozenset(features))


def test_files_keep_the_record(tmp_path: Path) -> None:
    artifact = compiled_for("x86-64-v3")
    artifact.save(tmp_path / "needy.rlxa")
    assert Artifact.load(tmp_path / "needy.rlxa").info["cpu"] == artifact.info["cpu"]


@pytest.mark.skipif(cpu.machine() != "x86_64", reason="the levels are those of x86-64")
def test_sessions_compile_for_the_assumed_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLX_CPU_LEVEL", raising=False)
    assert rlx.Session("cpu").target.arch == "host"
    monkeypatch.setenv("RLX_CPU_LEVEL", "x86-64")
    assert rlx.Session("cpu").target.arch == "x86-64"
    assert rlx.Session("cpu", arch="host").target.arch == "host"
    g = rlx.Graph("double")
    g.set_outputs(g.input("x", (3,), "f32") * 2)
    program = rlx.Session("cpu").compile(g)
    assert not {"sse3", "avx", "avx2"}.intersection(program.artifact.info["cpu"]["features"])
    monkeypatch.setattr(cpu, "host_cpu", lambda: frozenset(("sse3", "ssse3")))
    for other in ("x86-64-v4", "aarch64"):  # neither a level nor a machine that could run here
        monkeypatch.setenv("RLX_CPU_LEVEL", other)
        assert rlx.Session("cpu").target.arch == "host"
