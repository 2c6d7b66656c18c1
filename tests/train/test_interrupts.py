"""Ctrl-C during `fit` in a process of its own: exit, messages, and the checkpoint afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import time
import numpy as np
import rlx

compile_graph = rlx.Session.compile

def compiled(*args, **options):
    print("compiling", flush=True)
    return compile_graph(*args, **options)

def on_step(entry):
    if entry["step"] == 3:
        print("training", flush=True)
    if waits:
        time.sleep(0.05)

rlx.Session.compile = compiled
waits = sys.argv[2] == "waits"
x = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
options = {"loss": "mse", "epochs": 2, "batch_size": 1, "on_step": on_step, "cache": False, "device": "xla"}
trained = rlx.train.fit(rlx.nn.Linear(4, 1), (x, x[:, :1]), checkpoint=sys.argv[1], resume=True, **options)
print(trained.interrupted, trained.step.position, trained.history[-1]["loss"], trained.params["weight"].tolist())
"""


def run(checkpoint: Path, interrupt_at: str = "") -> tuple[int, str, str]:
    """Run the program, with Ctrl-C once it has printed a line. Return its exit status, last line and messages."""
    arguments = [sys.executable, "-c", PROGRAM, str(checkpoint), "waits" if interrupt_at else "-"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if interrupt_at:
            assert any(line.strip() == interrupt_at for line in process.stdout)
            process.send_signal(signal.SIGINT)
        output, messages = process.communicate(timeout=300)
    return process.returncode, (output.splitlines() or [""])[-1], messages


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for another process")
def test_ctrl_c_while_compiling_and_within_an_epoch(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    status, _, messages = run(path, "compiling")
    assert status == -signal.SIGINT and messages.splitlines()[-1] == "KeyboardInterrupt"
    assert os.listdir(tmp_path) == []

    status, result, messages = run(path, "training")
    assert status == 0 and "ending after this step; Ctrl-C again interrupts it" in messages
    assert "Traceback" not in messages and result.startswith("True (")
    steps, epoch, batches = map(int, result[len("True (") : result.index(")")].split(", "))
    assert 3 <= steps < 64 and (epoch, batches) == (0, steps)
    assert os.listdir(tmp_path) == [path.name]

    content = path.read_bytes()
    status, _, messages = run(path, "compiling")
    assert status == -signal.SIGINT and path.read_bytes() == content

    resumed, whole = run(path), run(tmp_path / "whole.safetensors")
    assert resumed[:2] == whole[:2] and whole[1].startswith("False (128, 2, 0)")
