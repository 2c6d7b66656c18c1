"""The footprint of C programs: sections, stack over the call graph, instructions and cycles."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli import main as rlx_command
from rlx.support.errors import CompileError
from rlx.targets.c import emulate, footprint, toolchain
from rlx.targets.c.lower.files import files_of
from rlx.targets.c.lower.selftest import self_test_of
from rlx.targets.c.targets import PARTS
from rlx.targets.c.timing import cycles_of, instructions_of
from rlx.targets.registry import target_of
from tests.targets.c.programs import program_of
from tests.targets.c.test_firmware import network

COMPILERS = ["clang", *(["gcc"] if shutil.which(toolchain.ARM_GCC) else [])]


def test_the_command_prints_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("unicorn")
    (tmp_path / "network.mlir").write_text(network().text(locations=True))
    arguments = ["compile", str(tmp_path / "network.mlir"), "--target=cortexm", "--part=nrf52840", "--report"]
    assert rlx_command.main([*arguments, "-o", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    text = (tmp_path / "out" / "network_report.txt").read_text()
    assert text in shown
    program = program_of(network())
    assert re.search(rf"network_weights.c +.rodata +{program.constant_bytes}\n", text)
    assert re.search(rf"network_state: arena +{program.arena_size}\n", text)
    assert re.search(r"^all +[\d,]+  [\d.]+ % of 1,048,576$", text, re.MULTILINE)
    assert "self-test in the emulator: passed" in text and "% of 262,144" in text and "ms at 64 MHz" in text
    counted = re.search(r"counted in the emulator: ([\d,]+)", text)
    layers = re.findall(r"^(?:step_\w+|others) .*? ([\d,]+) +(?:[\d.]+ +)?[\d.]+ %$", text, re.MULTILINE)
    assert counted and sum(int(n.replace(",", "")) for n in layers) == int(counted[1].replace(",", ""))
    assert re.search(r"^step_1_stem_conv +stem +864 ", text, re.MULTILINE)
    assert not re.search(r"^step.* 0 +[\d.]* +0.0 %$", text, re.MULTILINE)  # each step is a function, by any name


def test_a_report_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "zig", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(CompileError, match="a compiler for Arm is needed") as caught:
        footprint.footprint(program_of(network()), target_of("cortexm"))  # type: ignore[arg-type]
    assert "gcc-arm-none-eabi" in str(caught.value)


def test_a_report_without_an_emulator_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulate, "available", lambda: False)
    text = footprint.footprint(program_of(network()), target_of("cortexm", "m4"))  # type: ignore[arg-type]
    assert "predicted: " in text and "needs the emulator" in text


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("core", ["m4", "m0"])
def test_predicted_instructions_are_near(core: str, compiler: str) -> None:
    pytest.importorskip("unicorn")
    rng = np.random.default_rng(0)
    g: Any = rlx.Graph("predicted")
    x = g.input("x", (1, 16, 10, 10), "i8")
    dense, alone = (rng.integers(-127, 128, shape).astype(np.int8) for shape in ((24, 16, 3, 3), (24, 1, 3, 3)))
    h = g.rescale(g.q_conv2d(x, g.constant(dense), padding=1, dtype="i32"), 0.002)
    g.set_outputs([g.rescale(g.q_conv2d(h, g.constant(alone), padding=1, groups=24, dtype="i32"), 0.002)])
    program = program_of(g)
    machine = emulate.EmulatedMachine(emulate.build(program, core, compiler=compiler), program)
    run = machine.run([rng.integers(-128, 128, (1, 16, 10, 10)).astype(np.int8)])
    assert 0.5 < footprint.predicted_instructions(program, core) / run.instructions < 2
    assert run.instructions < run.cycles < 2 * run.instructions
    assert sum(run.by_function.values()) == run.instructions


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("core", ["m4", "m33"])
def test_the_worst_stack_is_at_least_the_measured_one(core: str, compiler: str) -> None:
    """Measured without the frame of the caller, which is part of the harness."""
    pytest.importorskip("unicorn")
    program = program_of(network())
    _, frames = footprint._compiled(program, toolchain.for_core(core, compiler))
    worst = footprint.worst_stack(files_of(program)[program.files.source], program.name, frames)
    machine = emulate.EmulatedMachine(emulate.build(program, core, compiler=compiler), program)
    run = machine.run([np.zeros((1, 2, 6, 6), np.int8)])
    assert run.stack - 64 <= worst.size <= run.stack + 16
    assert worst.size == sum(size for _, size in worst.path) and worst.path[0][0] == "network_run"


def test_the_stack_follows_the_call_graph() -> None:
    code = """
static int leaf(int x)
{
    return x;
}

/* Calls the other. */
static inline int between(int x, int y)
{
    return leaf(x) + y;
}

STEP void step_1(
    int a,
    int b)
{
    between(a, b);
}

void net_run(int a)
{
    step_1(a, a);
    leaf(a);
}
"""
    stack = footprint.worst_stack(code, "net", {"leaf": 40, "step_1": 8, "net_run": 24})
    assert stack.size == 72 and stack.path == (("net_run", 24), ("step_1", 8), ("leaf", 40))


@pytest.mark.parametrize(
    ("code", "cycles"),
    [
        ("00bf", 1),  # nop
        ("0868", 2),  # ldr r0, [r1]
        ("08684a68", 3),  # two loads overlap
        ("0868c0184a68", 5),  # an addition between them
        ("f0b5", 6),  # push {r4-r7, lr}
        ("2de9f04f", 10),  # push.w {r4-r11, lr}
        ("51f8040b", 2),  # ldr.w r0, [r1], #4
        ("b1fbf2f0", 6),  # udiv
        ("01fb0200", 1),  # mla
        ("c0ee000a", 14),  # vdiv.f32
        ("20ee000a", 1),  # vmul.f32
    ],
)
def test_cycles_of_instructions(code: str, cycles: int) -> None:
    data = bytes.fromhex(code)
    assert cycles_of(data) == cycles
    assert sum(2 if not second and first >> 11 < 0b11101 else 4 for first, second in instructions_of(data)) == len(data)


def test_parts_have_clocks() -> None:
    assert all(16 <= part.mhz <= 1000 for part in PARTS.values())
    assert target_of("cortexm", None, ("--part=nrf52840",)).mhz == 64  # type: ignore[attr-defined]
    with pytest.raises(CompileError, match="target c has no report"):
        target_of("c", None, ("--report",))


def test_a_wrong_self_test_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("unicorn")

    def wrong(program: Any) -> str:
        return self_test_of(program).replace("expected_best[3][1] = {\n    {", "expected_best[3][1] = {\n    {9")

    monkeypatch.setattr(footprint, "self_test_of", wrong)
    with pytest.raises(CompileError, match="the self-test of 'network' fails in the emulator with 102"):
        footprint.footprint(program_of(network()), target_of("cortexm"))  # type: ignore[arg-type]
