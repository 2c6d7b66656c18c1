"""Every op on a Vulkan device, such as Mesa's lavapipe: it computes what the evaluator computes, or is refused by name.

A run has a share of the samples: in f32 for the default architecture, and in other dtypes for devices that have them.
"""

from __future__ import annotations

from typing import Any

import pytest

from rlx.passes.runner import run_on_module
from rlx.support.errors import UnsupportedError
from rlx.targets.dispatch import with_kernels
from rlx.targets.iree.devices import devices
from rlx.targets.iree.targets import target
from rlx.targets.options import CompileOptions
from tests.conformance.cases import Case, cases, op_names
from tests.conformance.compiled import compile_graphs, contiguous
from tests.conformance.failures import Failures
from tests.conformance.functions import merged
from tests.conformance.judge import judge
from tests.conformance.values import value_sets
from tests.drawing import drawn, shares

HAS_DEVICE = any(d.driver == "vulkan" and d.available for d in devices())
_SHARES = 12
_BATCH = 12  # graphs in a module
_RUNS = 3  # of the first values: races do not occur in every run
_DTYPES = {"default": ("f32", "i32", "u32", "bool"), "desktop": ("i8", "u8", "i16", "i64", "f16")}
# These take a minute to compile. `mamba_block` and others are run by tests of programs.
_SLOW = ("mamba_block", "llama_decoder_block", "unet_residual_block", "gated_delta_net", "qwen35_mtp_head")


def _cases(arch: str, share: int) -> list[Case]:
    found = [case for op in op_names() if op not in _SLOW for case in cases(op) if case.dtype in _DTYPES[arch]]
    number = _SHARES if arch == "default" else 5 * _SHARES
    return shares(found, number, lambda case: case.op)[share]


def _is_refused(graph: Any, device: Any) -> bool:
    """Whether the target refuses a graph by name. Other errors are raised."""
    try:
        run_on_module(merged([graph]), with_kernels(device, CompileOptions(kernels="off")))
    except UnsupportedError as problem:
        assert "does not support" in str(problem)
        return True
    return False


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DEVICE, reason="no Vulkan device")
@drawn("share", range(_SHARES))
@pytest.mark.parametrize("arch", list(_DTYPES))
def test_vulkan(arch: str, share: int) -> None:
    device, failures = target("vulkan", arch), Failures()
    chosen = [(case, case.bindings()[0]) for case in _cases(arch, share)]
    graphs = [(case, bindings, case.graph(bindings)) for case, bindings in chosen]
    accepted = [entry for entry in graphs if not _is_refused(entry[2], device)]
    for stage in ("hir", "mir", "lir"):
        of_stage = [entry for entry in accepted if entry[2].stage == stage]
        for start in range(0, len(of_stage), _BATCH):
            batch = of_stage[start : start + _BATCH]
            programs = compile_graphs([graph for *_, graph in batch], device=device)
            for (case, bindings, graph), program in zip(batch, programs, strict=True):
                with failures.of(case):
                    assert program.problem is None, program.problem
                    for number, values in enumerate(value_sets(case, bindings)):
                        verdict = judge(case, graph, values, bindings, program.function)
                        for _ in range(1 if number else _RUNS):
                            for problem in verdict.problems(program.run(contiguous(values.arrays))):
                                failures.add(case, f"{values.name}: {problem}")
    failures.check()
