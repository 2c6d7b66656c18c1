"""Forks while other threads build, transform, lower, compile, load and run: a child works or raises, and never waits.

A thread runs each stage and stops at randomly chosen calls of rlx functions, where the process forks. This finds locks
held at these calls without depending on timing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drawing import SEED, drawn

CODE = """
import os, random, signal, sys, tempfile, threading, traceback, warnings
warnings.simplefilter("ignore")
import numpy as np
import rlx

device, seed = sys.argv[1], int(sys.argv[2])
draw = random.Random(seed)
ones = np.ones(4, np.float32)
SECONDS = 25  # for one child

def graph(length):
    g = rlx.Graph("g")
    x = y = g.input("x", (4,))
    w = g.param("w", (4,))
    for _ in range(length):
        y = g.tanh(y * w + 0.1)
    g.set_outputs([g.sum(y)])
    return g

def expected(length):
    y = ones
    for _ in range(length):
        y = np.tanh(y + np.float32(0.1))
    return y.sum()

def compiled(length, device=device):
    return rlx.Session(device, threads=1).compile(graph(length), params={"w": ones})

def passes(text):
    from rlx.passes import run
    return lambda: run(graph(5), f"builtin.module({text})")

def load():
    return compiled(3).load()

def run():
    shared.run({"x": ones})

STAGES = {
    "build": lambda: str(graph(5)),
    "parse": lambda: rlx.parse(str(graph(5))),
    "evaluate": lambda: rlx.evaluate(graph(5), {"x": ones, "w": ones}),
    "differentiate": lambda: rlx.vmap(rlx.grad(graph(5)), {"x": 0}, 2),
    "decompose": passes("rlx-lower-blocks,rlx-decompose,rlx-simplify,cse"),
    "lower to linalg": passes("rlx-lower-blocks,rlx-decompose,rlx-to-linalg"),
    "lower to StableHLO": passes("rlx-lower-blocks,rlx-decompose,rlx-to-stablehlo"),
    "compile": lambda: compiled(draw.randint(4, 9)),
    "load": load,
    "run": run,
}
if device == "xla":  # the others have nothing to do with the device
    STAGES = {name: STAGES[name] for name in ("lower to StableHLO", "compile", "load", "run")}

def is_right(program, length):
    return np.allclose(program.run({"x": ones})[0], expected(length))

def in_child(started, compiles):
    g = graph(3)
    assert np.allclose(rlx.evaluate(g, {"x": ones, "w": ones})[0], expected(3))
    rlx.parse(str(rlx.grad(g)))
    passes("rlx-decompose,rlx-to-linalg")()
    passes("rlx-decompose,rlx-to-stablehlo")()
    assert rlx.Pipeline(device).compile(g).lir is not None
    if not compiles:
        return
    for make, length, must_work in (
        (lambda: compiled(3), 3, not (device == "xla" and started)),
        (lambda: compiled(2, "cpu"), 2, True),
        (lambda: shared, 3, False),
    ):
        try:
            assert make() is None or is_right(make(), length)
        except rlx.Error as problem:
            assert not must_work and "fork" in str(problem) and "spawn" in str(problem), problem

def forked(started, compiles):
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            in_child(started, compiles)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return child

shared, children, total, counted = None, {}, {}, 0
at, paused, resume = set(), threading.Event(), threading.Event()

def count(frame, event, _):
    global counted
    if event == "call" and "rlx" in frame.f_code.co_filename:
        counted += 1
        if counted in at:
            where[0] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            paused.set()
            resume.wait(0.5)  # a fork waits for an import: then this goes on
            resume.clear()

def work(stage):
    sys.setprofile(count)
    try:
        STAGES[stage]()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    finally:
        sys.setprofile(None)
        ended.append(True)
        paused.set()

def collect(most):
    while len(children) > most:
        pid, status = os.wait()
        name = children.pop(pid)
        status = os.waitstatus_to_exitcode(status)
        if status:
            print(name, "hangs" if status == -signal.SIGALRM else f"ends with {status}", file=sys.stderr)
            sys.stderr.flush()
            os._exit(1)

where = [""]
for round in range(2):
    for stage in STAGES:
        if stage == "load" and shared is None:
            shared = compiled(3)
        at.clear()
        # The first use imports modules and makes caches; there, calls are counted.
        at.update((30, 300) if round == 0 else [draw.randrange(max(total[stage], 9))])
        counted, ended = 0, []
        thread = threading.Thread(target=work, args=(stage,), daemon=True)
        thread.start()
        while not ended:
            assert paused.wait(60), stage
            paused.clear()
            if not ended:
                # Each child that compiles starts a compiler: only one of each stage does.
                children[forked(stage in ("load", "run") or round > 0, round > 0)] = f"{stage} at {where[0]}"
                resume.set()
                collect(2)
        thread.join()
        total[stage] = counted
collect(0)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@drawn("device", ["cpu", "xla"])
def test_a_child_forked_at_any_stage_never_hangs(device: str, tmp_path: Path) -> None:
    if device == "xla":
        pytest.importorskip("jax")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RLX_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", CODE, device, str(SEED)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
