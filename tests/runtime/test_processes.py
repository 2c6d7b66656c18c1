"""Behaviour only visible in a fresh process: first uses by many threads at once, and forks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.drawing import drawn

FIRST_USES = """
import importlib, os, random, sys, threading, traceback
import numpy as np

sys.setswitchinterval(1e-6)
TEXT = "func.func @m(%x: tensor<4xf32>) -> tensor<4xf32> {\\n return %x: tensor<4xf32>\\n}\\n"

def module(name):
    return lambda: importlib.import_module(name)

def attribute(name):
    return lambda: getattr(importlib.import_module("rlx"), name)

def graph():
    import rlx
    g = rlx.Graph("g")
    g.set_outputs([g.softmax(g.input("x", (3,)))])
    return g

def jax():
    from rlx.targets.xla import client
    client.to_host(client.to_device([np.ones(3, np.float32)])[0])

USES = {
    **{name: module(name) for name in (
        "rlx.ops", "rlx.blocks", "rlx.train", "rlx.passes", "rlx.models.embedder", "rlx.runtime.session", "rlx.mlir",
        "rlx.targets.iree.backend", "rlx.targets.xla.backend", "rlx.targets.linalg", "rlx.targets.stablehlo",
    )},
    **{name: attribute(name) for name in ("Graph", "model", "CustomOp", "grad", "Session", "parse", "evaluate", "vmap")},
    "graph": graph,
    "parse text": lambda: attribute("parse")()(TEXT),
    "pass": lambda: module("rlx.passes")().run(graph(), "builtin.module(rlx-decompose,cse)"),
    "derivative": lambda: attribute("nth_order_grad"),
    "compile": lambda: attribute("Session")()(threads=1).compile(graph()).run({"x": np.ones(3, np.float32)}),
    "device": lambda: importlib.import_module("rlx.targets.iree.devices").device("local-sync"),
}
if sys.argv[2] == "jax":
    uses = [("jax", jax)] * 8
else:
    uses = random.Random(int(sys.argv[1])).sample(sorted(USES.items()), 10)
barrier, failed = threading.Barrier(len(uses)), []

def work(name, use):
    barrier.wait()
    try:
        use()
    except BaseException:
        failed.append(f"{name}: {traceback.format_exc()}")

threads = [threading.Thread(target=work, args=use, daemon=True) for use in uses]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(100)
failed += [f"{name} hangs" for (name, _), thread in zip(uses, threads) if thread.is_alive()]
print(*failed, file=sys.stderr)
sys.stderr.flush()
os._exit(1 if failed else 0)
"""

FORK = """
import os, sys, threading, warnings
import numpy as np
warnings.simplefilter("ignore")
import rlx
from rlx.support import locks

g = rlx.Graph("g")
x, w, n = g.input("x", (4,)), g.param("w", (4,)), g.state("n", ())
g.set_outputs([x * w])
g.update(n, n + 1.0)
ones = np.ones(4, np.float32)
device = sys.argv[1]
program = rlx.Session(device, threads=1).compile(g, params={"w": ones})
if sys.argv[2] == "used":
    program.run({"x": ones})

def is_right(program):
    return program.run({"x": ones})[0].tolist() == [1, 1, 1, 1]

def in_child():
    if device == "xla" and sys.argv[2] == "used":
        for use in (
            lambda: program.run({"x": ones}),
            lambda: program.state("n"),
            lambda: rlx.Session("xla").compile(g, params={"w": ones}).run({"x": ones}),
        ):
            try:
                use()
            except rlx.Error as problem:
                assert "fork" in str(problem) and "spawn" in str(problem), problem
            else:
                raise AssertionError("XLA ran in a forked process")
        is_fine = rlx.Session("cpu", threads=1).compile(g, params={"w": ones})
        assert is_right(is_fine)
    else:
        try:  # another thread may have been running it at the fork: here one holds its lock
            assert is_right(program)
        except rlx.Error as problem:
            assert "fork" in str(problem) and "spawn" in str(problem), problem
        assert is_right(rlx.Session(device, threads=1).compile(g, params={"w": ones}))
        assert rlx.parse(str(g)) is not None

# Locks that another thread holds at the moment of the fork, which the child has no thread to give back.
held, done = threading.Event(), threading.Event()
every = list(locks._locks)
def hold():
    for lock in every:
        lock.acquire()
    held.set()
    done.wait(60)
    for lock in every:
        lock.release()
holder = threading.Thread(target=hold)
holder.start()
held.wait(60)
child = os.fork()
if child == 0:
    try:
        in_child()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    sys.stderr.flush()
    os._exit(0)
done.set()
holder.join()
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status == 0, status
assert is_right(program)
"""


def run(code: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr


@drawn("seed", range(4), of_each=2)
def test_first_uses_by_many_threads(seed: int) -> None:
    run(FIRST_USES, str(seed), "")


def test_the_first_use_of_jax_by_many_threads() -> None:
    pytest.importorskip("jax")
    run(FIRST_USES, "0", "jax")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@drawn("device", ["cpu", "xla"])
@pytest.mark.parametrize("before", ["used", "unused"])
def test_a_forked_child_runs_or_says_why_not(device: str, before: str) -> None:
    if device == "xla":
        pytest.importorskip("jax")
    run(FORK, device, before)


def test_the_package_imports_only_its_own_modules() -> None:
    """A thread that imports `rlx.a.b` holds its lock and waits for `rlx`. An import of it in `rlx` could deadlock."""
    run("import sys, rlx; assert not {m for m in sys.modules if m.startswith('rlx.') and m.count('.') > 1}")


def test_importing_takes_no_context() -> None:
    """An importing thread holds a module's lock. If it also held the context's lock, two threads could deadlock."""
    run(
        "import importlib, pkgutil, rlx\n"
        "from rlx import mlir\n"
        "for m in pkgutil.walk_packages(rlx.__path__, 'rlx.'):\n"
        "    if m.name.split('.')[-1] not in ('__main__', 'worker', '_tick'):\n"
        "        importlib.import_module(m.name)\n"
        "        assert mlir._context is None, m.name\n"
    )
