"""Targets: flags, architectures, and supported dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES, DType
from rlx.passes.runner import run_on_module
from rlx.support.errors import CompileError, Error
from rlx.targets.cache import DiskCache
from rlx.targets.host import host_features
from rlx.targets.iree.backend import module_text
from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.targets import LARGE, Target, archs, device_names, target
from rlx.targets.options import DEFAULT_LEVEL
from rlx.targets.stages import lower

ADD = """
func.func @main(%a: tensor<64xT>, %b: tensor<64xT>) -> tensor<64xT> {{
  %0 = arith.add{} %a, %b : tensor<64xT>
  return %0 : tensor<64xT>
}}
"""
# Some targets that store dtypes as other dtypes.
_TAKES_BYTES = [("cuda", None), ("rocm", None), ("vulkan", "valhall4"), ("metal", None), ("vmvx", None)]


def add(dtype: str) -> str:
    return ADD.format("i" if dtype[0] == "i" else "f").replace("T", dtype)


def test_cpu_is_tuned_for_this_machine():
    cpu = target("cpu")
    assert "--iree-llvmcpu-target-cpu=host" in cpu.flags
    assert "--iree-opt-level=O3" in cpu.attempts[0]
    assert "--iree-dispatch-creation-data-tiling" in cpu.attempts[0]
    assert "--iree-dispatch-creation-data-tiling" not in cpu.attempts[1]
    assert not any("opt-level" in flag for flag in cpu.attempts[2])
    assert cpu.supports_f64
    assert not cpu.cross
    assert cpu.drivers[0] == "local-sync"


def test_level_0_is_compiled_without_optimisations_of_llvm(tmp_path: Path) -> None:
    """At every level, the user's flags are after the flags of the target."""
    option = "--iree-llvmcpu-loop-unrolling"
    cpu = target("cpu", extra_flags=[f"{option}=false"])
    assert cpu.at_level(1).attempts == cpu.at_level(3).attempts == cpu.attempts
    assert set(cpu.attempts[0]) - set(cpu.at_level(0).attempts[0]) == set(cpu.optimisations) != set()
    assert cpu.attempts[1:] == cpu.at_level(0).attempts[1:]
    assert cpu.attempts[0].index(option) < cpu.attempts[0].index(f"{option}=false")
    g = rlx.Graph("levels")
    g.set_outputs([g.input("x", (4,)) + 1.0])
    cache = DiskCache(tmp_path)
    used = [rlx.Session().compile(g, opt=level, cache=cache).artifact.info["flags"] for level in (0, 2)]
    assert [set(cpu.optimisations) <= set(flags) for flags in used] == [False, True]


def test_level_3_and_large_programs_have_flags_of_a_process_that_a_user_does_not_give() -> None:
    option = "--iree-llvmcpu-vector-pproc-strategy"
    cpu, other = target("cpu"), target("cpu", extra_flags=[f"{option}=mask"])
    assert cpu.level == DEFAULT_LEVEL
    for chosen, more in ((cpu, [f"{option}=peel"]), (other, []), (target("cuda"), [])):
        first, *others = [chosen.at_level(3).process_flags_of(flags) for flags in chosen.attempts]
        assert list(first) == [*chosen.process_flags, *more]
        assert {*others, *map(chosen.process_flags_of, chosen.attempts)} == {chosen.process_flags}
        for level in (0, 1, 2, 3):
            large = chosen.at_level(level, LARGE).process_flags_of(chosen.attempts[0])
            assert large == chosen.at_level(3 if level == 2 else level).process_flags_of(chosen.attempts[0])
    g: Any = rlx.Graph("level3")
    g.set_outputs([g.softmax(g.input("x", (3, 37)) @ g.input("w", (37, 19)))])
    values = {a.name: np.random.default_rng(0).standard_normal(a.shape.static, np.float32) for a in g.inputs}
    (result,) = rlx.Session().compile(g, opt=3, cache=False).run(values)
    np.testing.assert_allclose(result, rlx.evaluate(g, values)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", device_names())
def test_every_target_has_a_ladder_and_drivers(name: str):
    chosen = target(name)
    assert chosen.name == name
    assert len(chosen.ladder) >= 2
    assert len(set(chosen.attempts)) == len(chosen.attempts)
    assert chosen.drivers
    assert chosen.arch == archs(name)[0]


@pytest.mark.parametrize("name", device_names())
def test_every_default_target_compiles(name: str):
    module = compile_module(add("f32"), target(name))
    assert len(module.attempts) == 1
    assert len(module.vmfb) > 500


@pytest.mark.parametrize("arch", ["x86-64-v3", "aarch64", "apple", "riscv64"])
def test_cpus_of_other_machines_compile(arch: str):
    cross = target("cpu", arch)
    assert cross.cross
    assert cross.host_features == ""
    assert len(compile_module(add("f32"), cross).attempts) == 1


def test_cuda_architectures():
    assert target("cuda").arch == "sm_80"
    assert "--iree-cuda-target=sm_80" in target("cuda").flags
    assert target("cuda", "sm_75").arch == "sm_75"
    assert target("cuda", "RTX4090").arch == "sm_89"
    for newer in ("sm_90", "sm_90a", "sm_100", "h100"):
        hopper = target("cuda", newer)
        assert hopper.arch == "sm_89"
        assert any(newer in note for note in hopper.notes)
    assert not any("O2" in flag or "O3" in flag for rung in target("cuda").ladder for flag in rung)


def test_an_unknown_target_or_architecture_is_an_error_with_a_suggestion():
    with pytest.raises(CompileError, match=r"unknown target: 'cdua'\n.*did you mean 'cuda'"):
        target("cdua")
    with pytest.raises(CompileError, match=r"unknown architecture of cuda: 'sm_88'\n.*did you mean 'sm_8"):
        target("cuda", "sm_88")
    with pytest.raises(Error, match="known: gfx1100"):
        target("rocm", "sm_80")


def test_extra_flags_come_last_and_are_checked():
    assert target("cpu", extra_flags=["--iree-opt-level=O1"]).attempts[0][-1] == "--iree-opt-level=O1"
    with pytest.raises(CompileError, match="option not found: no-such-flag") as caught:
        compile_module(add("f32"), target("cpu", extra_flags=["--no-such-flag"]))
    assert "attempt 2" not in str(caught.value)


def test_fingerprints_tell_targets_apart():
    every = [target(name, arch) for name in device_names() for arch in archs(name)]
    every.append(target("cpu", extra_flags=["--iree-opt-level=O1"]))
    assert len({chosen.fingerprint() for chosen in every}) == len(every)
    assert host_features() in target("cpu").fingerprint()
    assert target("cpu").fingerprint() == target("cpu", "native").fingerprint()


@pytest.mark.parametrize(
    ("chosen", "mlir", "dtype"),
    [
        (target("vulkan"), "f64", "f64"),
        (target("vulkan"), "i64", "i64"),
        (target("metal"), "f64", "f64"),
        (target("vmvx"), "f16", "f16"),
        (target("vmvx"), "bf16", "bf16"),
    ],
    ids=lambda value: value.name if isinstance(value, Target) else value,
)
def test_unsupported_dtypes_do_not_compile(chosen: Target, mlir: str, dtype: str):
    assert dtype in chosen.unsupported_dtypes
    with pytest.raises(CompileError):
        compile_module(add(mlir), chosen)


@pytest.mark.parametrize("mlir", ["f64", "i64"])
def test_wide_dtypes_stay_wide_on_cuda(mlir: str):
    assert target("cuda").supports_f64
    vmfb = compile_module(add(mlir), target("cuda")).vmfb
    assert f"tensor<64x{mlir}>".encode() in vmfb  # in the declaration of the function


@pytest.mark.parametrize("name", device_names())
def test_dtypes_that_are_held_as_others_are_refused_with_them(name: str) -> None:
    for arch in archs(name):
        lacking = target(name, arch).unsupported_dtypes
        for kind in DTYPES:
            held_as = {"i8"} if kind.storage else {f"i{kind.bits}"} if kind.kind == "unsigned" else set[str]()
            held_as = {"c64", kind.part.name} if kind.is_complex else held_as
            assert not held_as & lacking or kind.name in lacking, f"{name}:{arch} {kind.name}"
            assert not kind.storage or (kind.name in lacking) == ("i8" in lacking), f"{name}:{arch} {kind.name}"


@pytest.mark.parametrize("kind", [k for k in DTYPES if k.storage or k.name in ("u16", "u64", "c128")], ids=str)
def test_refusals_name_the_dtype(kind: DType) -> None:
    graph = rlx.Graph("main")
    graph.set_outputs([graph.concat([graph.input("x", (4,), kind)] * 2, 0)])
    with pytest.raises(Error, match=rf"\b{kind.name}\b"):
        run_on_module(graph.module, target("vulkan").pipeline)


@pytest.mark.parametrize("chosen", [target(*a) for a in _TAKES_BYTES], ids=lambda chosen: chosen.name)
def test_dtypes_that_are_not_refused_compile(chosen: Target) -> None:
    """Casts in both directions and moves, of integers, floats and complex numbers that are stored as other dtypes."""
    graph, results = rlx.Graph("main"), []
    for name in ("u16", "u64", "c128", "f8e4m3fn", "f8e8m0fnu", "f4e2m1fn", "i4", "u2"):
        if name in chosen.unsupported_dtypes:
            continue
        x, w = graph.input(f"x_{name}", (6, 16), name), graph.param(f"w_{name}", (6, 16), name)
        results += [graph.cast(x, "f32"), graph.cast(graph.input(f"f_{name}", (6, 16)), name), graph.concat([x, w], 0)]
        if not rlx.dtype(name).storage:
            results += [x * w, graph.sum(x, [1])]
    graph.set_outputs(results)
    module = graph.clone().module
    run_on_module(module, chosen.pipeline)
    lower(module, chosen.lowering(chosen.level))
    assert len(compile_module(module_text(module), chosen).attempts) == 1
