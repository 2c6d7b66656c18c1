"""Compiling: results, diagnostics with source locations, and a compiler that crashes, hangs or is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlx.support.errors import CompileError, Error
from rlx.targets.iree import compiler, process
from rlx.targets.iree.compiler import ModuleCompileError, compile_module, prewarm
from rlx.targets.iree.executable import IreeExecutable
from rlx.targets.iree.process import compiler_command
from rlx.targets.iree.targets import target
from rlx.targets.worker import pool as worker_pool
from rlx.targets.worker.pool import WorkerPool
from rlx.targets.worker.process import WorkerDied
from tests.targets.worker.processes import is_gone, wait_until

CPU = target("cpu")
COMPILER = compiler_command(CPU.process_flags)
DOUBLE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = arith.addf %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
"""
UNREGISTERED = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = "no.such_op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
"""
ILLEGAL = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf16> {
  %y = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tensor<4xf16>
      loc(callsite("layer0"("model.py":12:7) at "train.py":40:3))
  return %y : tensor<4xf16>
}
"""

posix_only = pytest.mark.skipif(os.name != "posix", reason="sends signals")


@pytest.fixture(scope="module")
def shared_pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(1)
    yield pool
    pool.close()


@pytest.fixture
def pool(shared_pool: WorkerPool) -> WorkerPool:
    """One process, alive and idle."""
    assert shared_pool.request(COMPILER, {"kind": "ping"}, timeout_s=60).header["outcome"] == "ok"
    return shared_pool


def is_right(vmfb: bytes) -> bool:
    x = np.arange(4, dtype=np.float32)
    return bool(np.array_equal(IreeExecutable(vmfb).function("main")([x])[0], 2 * x))


def post(pool: WorkerPool, **request: object) -> int:
    """Send a request to the pool's process before the next request, and return the process id."""
    return pool.post(COMPILER, request)


def run_script(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


# ---- results


def test_text_and_bytes_compile_alike(pool: WorkerPool):
    module = compile_module(DOUBLE, CPU, worker=pool)
    assert is_right(module.vmfb)
    assert module.flags_used == CPU.attempts[0]
    assert [attempt.outcome for attempt in module.attempts] == ["ok"]
    assert compile_module(DOUBLE.encode(), CPU, worker=pool).vmfb == module.vmfb


def test_compiling_is_deterministic_over_processes(pool: WorkerPool):
    first = compile_module(DOUBLE, CPU, worker=pool).vmfb
    pool.close()
    assert compile_module(DOUBLE, CPU, worker=pool).vmfb == first


def test_artifacts_name_no_paths_of_the_compiler(pool: WorkerPool):
    assert b"rlx-worker-" not in compile_module(DOUBLE, CPU, worker=pool).vmfb


def test_a_module_with_more_bytes_than_a_pipe_holds(pool: WorkerPool):
    functions = "".join(DOUBLE.replace("@main", f"@f{number}") for number in range(1000))
    text = DOUBLE + "// " + "x" * 2_000_000 + "\n" + functions.split("func.func @f2(")[0]
    assert len(text) > 1 << 20
    assert is_right(compile_module(text, CPU, worker=pool).vmfb)


def test_prewarm_starts_one_process_that_compiles():
    own = WorkerPool()
    prewarm(CPU, worker=own)
    assert wait_until(lambda: len(own.pids) == 1)
    (pid,) = own.pids
    prewarm(CPU, worker=own)
    assert is_right(compile_module(DOUBLE, CPU, worker=own).vmfb)
    assert own.pids == [pid]
    own.close()
    assert own.pids == []


def test_two_modules_compile_at_once():
    own = WorkerPool(2)
    modules = [DOUBLE.replace("4x", f"{size}x") for size in range(4, 10)]
    with ThreadPoolExecutor(6) as executor:
        compiled = list(executor.map(lambda text: compile_module(text, CPU, worker=own), modules))
    assert len(own.pids) == 2
    for size, module in zip(range(4, 10), compiled, strict=True):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(IreeExecutable(module.vmfb).function("main")([x])[0], 2 * x)
    own.close()


# ---- diagnostics


def test_an_error_has_the_users_place(pool: WorkerPool):
    with pytest.raises(CompileError) as caught:
        compile_module(ILLEGAL, CPU, worker=pool)
    message = str(caught.value)
    assert caught.value.location == "model.py:12:7"
    assert "\nmodel.py:12:7: error: failed to legalize operation" in message
    assert "\ntrain.py:40:3: note: called from" in message
    assert "attempt 3, with nothing more: failed with diagnostics" in message
    assert isinstance(caught.value, ModuleCompileError)
    assert [attempt.flags for attempt in caught.value.attempts] == list(CPU.attempts)


def test_a_syntax_error_has_line_and_column_and_is_not_tried_twice(pool: WorkerPool):
    with pytest.raises(ModuleCompileError) as caught:
        compile_module(DOUBLE.replace("arith.addf", "arith.addd"), CPU, worker=pool, name="graph.mlir")
    assert caught.value.location == "graph.mlir:3:8"
    assert "graph.mlir:3:8: error: " in str(caught.value)
    assert len(caught.value.attempts) == 1


def test_a_long_dump_is_cut_short(pool: WorkerPool):
    functions = "".join(DOUBLE.replace("@main", f"@f{number}") for number in range(500))
    with pytest.raises(CompileError) as caught:
        compile_module(functions + ILLEGAL, CPU, worker=pool)
    assert "model.py:12:7: error: failed to legalize operation" in str(caught.value)
    assert len(str(caught.value)) < 6000


def test_what_the_linker_says_is_told(pool: WorkerPool):
    softmax = """
func.func @main(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %y = linalg.softmax dimension(1)
      ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %y : tensor<64x128xf16>
}
"""
    x86 = target("cpu", "x86-64-v3")
    only_rung = replace(x86, ladder=x86.ladder[-1:])
    with pytest.raises(CompileError, match="undefined symbol: fmaxf"):
        compile_module(softmax, only_rung, worker=pool)


def test_the_compiler_works_on_after_errors(pool: WorkerPool):
    (pid,) = pool.pids
    for bad in (ILLEGAL, "not mlir", "", "\0"):
        if bad.strip("\0"):
            with pytest.raises(CompileError):
                compile_module(bad, CPU, worker=pool)
    assert is_right(compile_module(DOUBLE, CPU, worker=pool).vmfb)
    assert pool.pids == [pid]


# ---- crashes, hangs, kills


def test_a_crash_is_an_exception_and_the_next_module_compiles(pool: WorkerPool):
    with pytest.raises(ModuleCompileError) as caught:
        compile_module(UNREGISTERED, CPU, worker=pool)
    assert str(caught.value).count("crashed with signal 11 (SIGSEGV)") == 3
    assert "an operation that IREE does not know" in str(caught.value)
    assert is_right(compile_module(DOUBLE, CPU, worker=pool).vmfb)


@posix_only
def test_a_crash_at_the_first_rung_is_followed_by_the_second(pool: WorkerPool):
    post(pool, kind="sleep", seconds=1)  # so that it is alive when the compile request arrives
    post(pool, kind="abort")
    module = compile_module(DOUBLE, CPU, worker=pool)
    assert [a.outcome for a in module.attempts] == ["crashed with signal 6 (SIGABRT)", "ok"]
    assert module.flags_used == CPU.attempts[1]
    assert is_right(module.vmfb)


def test_a_hang_is_ended_and_followed_by_the_second_rung(pool: WorkerPool):
    pid = post(pool, kind="sleep", seconds=60)
    module = compile_module(DOUBLE, CPU, worker=pool, timeout_s=15)  # a busy machine takes longer than six
    assert [a.outcome for a in module.attempts] == ["timed out after 15 s", "ok"]
    assert 15 <= module.attempts[0].seconds < 60
    assert is_gone(pid)
    assert is_right(module.vmfb)
    assert module.may_improve


def test_a_module_that_never_compiles_in_time(pool: WorkerPool):
    with pytest.raises(ModuleCompileError, match="RLX_COMPILE_TIMEOUT") as caught:
        compile_module(DOUBLE, CPU, worker=pool, timeout_s=0.001)
    assert [a.outcome for a in caught.value.attempts] == ["timed out after 0.001 s"] * 3


@posix_only
def test_killed_between_two_compiles(pool: WorkerPool):
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it ended, and the pool has not noticed
    module = compile_module(DOUBLE, CPU, worker=pool)
    assert [a.outcome for a in module.attempts] == ["ok"]
    assert module.flags_used == CPU.attempts[0]
    assert pool.pids != [pid]
    assert not os.path.exists(f"/proc/{pid}"), "a zombie is left"


@posix_only
def test_killed_while_compiling(pool: WorkerPool):
    pid = post(pool, kind="sleep", seconds=60)
    killer = threading.Timer(0.3, os.kill, (pid, signal.SIGKILL))
    killer.start()
    module = compile_module(DOUBLE, CPU, worker=pool)
    outcomes = [a.outcome for a in module.attempts]
    assert outcomes == ["was killed by signal 9 (SIGKILL)", "ok"]
    assert module.flags_used == CPU.attempts[0], "it is not the module's fault"
    assert not module.may_improve
    assert not os.path.exists(f"/proc/{pid}")


@posix_only
def test_killed_again_and_again(pool: WorkerPool):
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.01):
            for pid in pool.pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(ModuleCompileError, match="hint: the compiler's process was ended from outside") as caught:
            compile_module(DOUBLE, CPU, worker=pool)
    finally:
        over.set()
        killer.join()
    assert "does not know" not in str(caught.value), "it is not the module's fault"
    assert {a.outcome for a in caught.value.attempts} == {"was killed by signal 9 (SIGKILL)"}
    assert is_right(compile_module(DOUBLE, CPU, worker=pool).vmfb)


def test_closing_a_pool_at_work(pool: WorkerPool):
    post(pool, kind="sleep", seconds=60)
    threading.Timer(0.3, pool.close).start()
    with pytest.raises(WorkerDied):
        pool.request(COMPILER, {"kind": "ping"})
    assert is_right(compile_module(DOUBLE, CPU, worker=pool).vmfb)


def test_a_pool_that_is_dropped_ends_its_processes():
    own = WorkerPool()
    pid = post(own, kind="ping")
    del own
    assert wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_big_process_is_replaced(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch):
    (pid,) = pool.pids
    compile_module(DOUBLE, CPU, worker=pool)
    assert pool.pids == [pid]
    monkeypatch.setattr(worker_pool, "_RETIRE_ABOVE_MIB", 1)
    compile_module(DOUBLE, CPU, worker=pool)
    assert pool.pids == []
    assert is_gone(pid)


def test_the_compiler_is_not_installed(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(CompileError, match=r"not installed\n.*pip install"):
        compile_module(DOUBLE, CPU, worker=WorkerPool())


def test_a_compiler_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    broken = tmp_path / "libIREECompiler.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(process, "compiler_library", lambda: broken)
    own = WorkerPool()
    with pytest.raises(CompileError, match="ended with exit status 1") as caught:
        compile_module(DOUBLE, CPU, worker=own)
    assert str(broken) in str(caught.value)
    own.close()


# ---- parents


INTERRUPT = """
import os, signal, threading
import pytest
from rlx.targets.iree.process import WorkerPool, compiler_command
from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.targets import target

pool = WorkerPool(1)
command = compiler_command(target("cpu").process_flags)
pool.request(command, {"kind": "ping"})
pool.post(command, {"kind": "sleep", "seconds": 60})
threading.Timer(0.3, os.killpg, (0, signal.SIGINT)).start()  # as a terminal does it
with pytest.raises(KeyboardInterrupt):
    compile_module("func.func @main() { return }", target("cpu"), worker=pool)
assert len(compile_module("func.func @main() { return }", target("cpu"), worker=pool).attempts) == 1
"""

DIES = """
import os, signal, sys
from rlx.targets.iree.process import WorkerPool, compiler_command
pool = WorkerPool(2)
for command in (compiler_command(("--iree-llvmcpu-target-cpu=host",)), compiler_command()):
    pool.request(command, {"kind": "ping"})
pool.post(command, {"kind": "sleep", "seconds": 60})
print(*pool.pids, *(worker._folder for worker in pool._workers), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""

FORK = """
import os, sys
from rlx.targets.iree.process import default_pool
from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.targets import target

text = "func.func @main() { return }"
compile_module(text, target("cpu"))
(pid,) = default_pool.pids
child = os.fork()
compile_module(text, target("cpu"))
if child == 0:
    assert default_pool.pids != [pid], "the child uses its parent's process"
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert default_pool.pids == [pid]
assert len(compile_module(text, target("cpu")).attempts) == 1
assert default_pool.pids == [pid]
"""


@posix_only
def test_an_interrupt_leaves_a_usable_pool():
    done = run_script("import os; os.setsid()\n" + INTERRUPT)
    assert done.returncode == 0, done.stderr


@posix_only
@pytest.mark.parametrize("end", ["killed", "normal"])
def test_processes_end_with_their_parent(end: str):
    done = run_script(DIES, end)
    assert done.returncode == (-signal.SIGKILL if end == "killed" else 0), done.stderr
    idle, busy, *folders = done.stdout.split()
    for pid in (int(idle), int(busy)):
        assert wait_until(lambda pid=pid: is_gone(pid)), pid
    for folder in folders:
        assert not os.path.exists(folder)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_has_processes_of_its_own():
    done = run_script(FORK)
    assert done.returncode == 0, done.stderr


def test_importing_costs_little():
    code = """
import sys
import rlx.targets.iree.compiler, rlx.targets.iree.executable, rlx.targets.iree.devices
heavy = {name for name in sys.modules if name.split(".")[0] in ("iree", "jax", "torch", "ml_dtypes")}
assert not heavy, heavy
"""
    done = run_script(code)
    assert done.returncode == 0, done.stderr


# ---- settings


def test_timeout_from_the_environment(monkeypatch: pytest.MonkeyPatch, pool: WorkerPool):
    monkeypatch.delenv("RLX_COMPILE_TIMEOUT", raising=False)
    assert compiler.default_timeout() == 600
    monkeypatch.setenv("RLX_COMPILE_TIMEOUT", "0.001")
    with pytest.raises(CompileError, match=r"timed out after 0\.001 s"):
        compile_module(DOUBLE, CPU, worker=pool)
    for wrong in ("soon", "-3", "0", "nan"):
        monkeypatch.setenv("RLX_COMPILE_TIMEOUT", wrong)
        with pytest.raises(Error, match="RLX_COMPILE_TIMEOUT"):
            compile_module(DOUBLE, CPU, worker=pool)


def test_the_compiler_has_one_thread_or_all(monkeypatch: pytest.MonkeyPatch, pool: WorkerPool):
    monkeypatch.setenv("RLX_COMPILE_THREADS", "")
    assert "--mlir-disable-threading" not in compiler_command().arguments
    monkeypatch.setenv("RLX_COMPILE_THREADS", "1")
    assert "--mlir-disable-threading" in compiler_command().arguments
    assert compile_module(DOUBLE, CPU, worker=pool).vmfb
    for wrong in ("2", "0", "one"):
        monkeypatch.setenv("RLX_COMPILE_THREADS", wrong)
        with pytest.raises(Error, match="RLX_COMPILE_THREADS"):
            compile_module(DOUBLE, CPU, worker=pool)
