"""Worker processes: requests, time limits, kills and interrupts, with a handler that compiles nothing."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rlx.support.errors import Error
from rlx.targets.worker import folder as folders
from rlx.targets.worker import pool as pools
from rlx.targets.worker import process as processes
from rlx.targets.worker import shielded
from rlx.targets.worker.pool import WorkerPool
from rlx.targets.worker.process import Command, HandlerFailed, WorkerDied
from tests.drawing import drawn
from tests.interrupts import Interrupts
from tests.targets.worker import echo_handler
from tests.targets.worker.processes import is_gone, wait_until

ECHO = Command(str(echo_handler.__file__), ("a",))
OTHER = Command(str(echo_handler.__file__), ("b",))
posix_only = pytest.mark.skipif(os.name != "posix", reason="sends signals")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder that workers' folders are made in."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def pool(place: Path) -> Iterator[WorkerPool]:
    made = WorkerPool(2)
    yield made
    made.close()


def echo(pool: WorkerPool, command: Command = ECHO) -> None:
    reply = pool.request(command, {"kind": "echo"}, b"body", timeout_s=60)
    assert reply.body == b"body"
    assert reply.header["arguments"] == list(command.arguments)


def test_the_size_of_this_process_does_not_count_for_its_workers(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlx.targets.worker.pool._RETIRE_ABOVE_MIB", 200)
    ballast = b"x" * (300 << 20)  # written to, so that it is in memory
    echo(pool)
    (pid,) = pool.pids
    echo(pool)
    assert pool.pids == [pid] and len(ballast) > 200 << 20


def test_processes_are_reused_and_make_room(pool: WorkerPool) -> None:
    echo(pool)
    (pid,) = pool.pids
    echo(pool)
    assert pool.pids == [pid]
    for number in range(4):
        echo(pool, Command(str(echo_handler.__file__), (str(number),)))
    assert len(pool.pids) == 2


def test_many_callers_share_the_processes(pool: WorkerPool) -> None:
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda i: echo(pool, ECHO if i % 2 else OTHER), range(24)))
    assert len(pool.pids) <= 2


def test_a_time_limit_and_an_end_of_its_own(pool: WorkerPool) -> None:
    with pytest.raises(WorkerDied) as caught:
        pool.request(ECHO, {"kind": "hang"}, timeout_s=0.2)
    assert caught.value.timed_out
    assert not caught.value.killed_from_outside
    with pytest.raises(WorkerDied, match="status 3"):
        pool.request(ECHO, {"kind": "exit"})
    echo(pool)


@posix_only
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1])
def test_a_kill_from_outside_is_told_from_a_crash(pool: WorkerPool, number: signal.Signals) -> None:
    echo(pool)
    (pid,) = pool.pids
    threading.Timer(0.2, os.kill, (pid, number)).start()
    with pytest.raises(WorkerDied) as caught:
        pool.request(ECHO, {"kind": "hang"})
    assert caught.value.killed_from_outside
    assert caught.value.reason == f"was killed by signal {number.value} ({number.name})"
    assert is_gone(pid)


def test_a_handler_that_cannot_be_loaded(pool: WorkerPool, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module")
    with pytest.raises(WorkerDied) as caught:
        pool.request(Command(str(broken)), {"kind": "echo"})
    assert "no_such_module" in caught.value.stderr


def test_an_exception_of_the_handler_costs_no_process(pool: WorkerPool) -> None:
    echo(pool)
    before = pool.pids
    for _ in range(2):
        with pytest.raises(HandlerFailed, match=r"^ValueError: not this one$") as caught:
            pool.request(ECHO, {"kind": "raise"}, timeout_s=60)
        assert "echo_handler.py" in caught.value.stderr
        pool.post(ECHO, {"kind": "raise"})
        echo(pool)
    assert pool.pids == before


SLOW = Command(str(echo_handler.__file__), ("slow",))


def start_on_request(pool: WorkerPool) -> None:
    echo(pool, SLOW)


def start_ahead(pool: WorkerPool) -> None:
    pool.prewarm(SLOW, {"kind": "ping"})
    echo(pool, SLOW)


def end_to_make_room(pool: WorkerPool) -> None:
    echo(pool, OTHER)


def end_after_use(pool: WorkerPool) -> None:
    with pytest.raises(WorkerDied):
        pool.request(SLOW, {"kind": "exit"})


def end_when_found_dead(pool: WorkerPool) -> None:
    echo(pool, SLOW)
    processes.Worker.kill(next(w for w in pool._workers if w.command == SLOW))
    echo(pool, SLOW)


@pytest.mark.parametrize("work", [start_on_request, start_ahead, end_to_make_room, end_after_use, end_when_found_dead])
def test_nobody_waits_for_the_start_or_end_of_a_process_of_others(
    place: Path, monkeypatch: pytest.MonkeyPatch, work: Any
) -> None:
    """Neither a caller that needs an idle process waits, nor one that needs a new process if there is a free slot."""
    reached, go_on = threading.Event(), threading.Event()
    step = "_started" if work in (start_on_request, start_ahead) else "close"
    original = getattr(processes.Worker, step)

    def slowly(worker: Any) -> Any:
        if worker.command == SLOW and not go_on.is_set():
            reached.set()
            go_on.wait(60)
        return original(worker)

    pool = WorkerPool(3 if work is not end_to_make_room else 2)
    if work is end_to_make_room:
        echo(pool, SLOW)  # it has been idle for the longest time, so it is ended to make room
    echo(pool, ECHO)
    monkeypatch.setattr(processes.Worker, step, slowly)
    with ThreadPoolExecutor(2) as executor:
        try:
            slow = executor.submit(work, pool)
            assert reached.wait(60)
            executor.submit(echo, pool, ECHO).result(20)
            if work is not end_to_make_room:
                executor.submit(echo, pool, OTHER).result(20)
        finally:
            go_on.set()
        slow.result(60)
    pids = pool.pids
    assert len(set(pids)) == len(pids) <= 3
    pool.close()
    assert not pool.pids and all(map(is_gone, pids))


def test_a_process_that_starts_while_the_pool_is_closed_does_not_stay(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, started = processes.Worker._started, []

    def closing(worker: Any) -> Any:
        process = original(worker)
        started.append(process.pid)
        pool.close()
        return process

    monkeypatch.setattr(processes.Worker, "_started", closing)
    echo(pool)
    pool.prewarm(ECHO, {"kind": "ping"})
    assert wait_until(lambda: len(started) == 2 and all(map(is_gone, started)))
    assert not pool.pids


# ---- interrupts


def prepare_first(pool: WorkerPool) -> None:
    pool.close()


def prepare_warm(pool: WorkerPool) -> None:
    echo(pool)


def prepare_dead(pool: WorkerPool) -> None:
    echo(pool)
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def prepare_others(pool: WorkerPool) -> None:
    pool.prewarm(OTHER, {"kind": "ping"})
    assert wait_until(lambda: pool.pids)
    echo(pool)


@posix_only
@drawn("prepare", [prepare_first, prepare_warm, prepare_dead, prepare_others], of_each=2)
def test_an_interrupt_at_any_step_loses_nothing(pool: WorkerPool, place: Path, prepare: Any) -> None:
    interrupts = Interrupts([pools, processes, shielded, folders])

    def work() -> None:
        pool.prewarm(ECHO, {"kind": "ping"})
        pool.request(ECHO, {"kind": "echo"}, timeout_s=60)
        pool.pids  # noqa: B018

    prepare(pool)
    steps = interrupts.steps(work)
    assert len(steps) > 20
    for step in steps:
        prepare(pool)
        interrupts.at(step, work)
        before = set(pool.pids)
        echo(pool)
        echo(pool, OTHER)  # with one lost slot and one used slot, this would hang
        assert len(pool.pids) <= 2, step
        assert wait_until(lambda before=before: all(is_gone(p) or p in pool.pids for p in before)), step
    pids = pool.pids
    pool.close()
    assert all(map(is_gone, pids))
    assert wait_until(lambda: not list(place.iterdir())), "a temporary folder is left"


@posix_only
def test_an_interrupt_while_others_work(pool: WorkerPool) -> None:
    """One process hangs for another caller. The other process hangs for the caller that is interrupted at every step."""
    interrupts = Interrupts([pools, processes, shielded])

    def hang() -> None:
        with pytest.raises(WorkerDied):
            pool.request(OTHER, {"kind": "hang"})

    busy = threading.Thread(target=hang)
    busy.start()
    assert wait_until(lambda: len(pool.pids) == 1)
    for step in interrupts.steps(lambda: echo(pool)):
        interrupts.at(step, lambda: echo(pool))
        echo(pool)
    pool.close()
    busy.join(30)
    assert not busy.is_alive()


@posix_only
def test_a_request_that_is_interrupted_ends_its_process(pool: WorkerPool) -> None:
    echo(pool)
    (pid,) = pool.pids
    threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        pool.request(ECHO, {"kind": "hang"})
    assert wait_until(lambda: is_gone(pid))
    echo(pool)


# ---- folders

HOSTILE = [
    "$(touch run)",
    "`touch run`",
    "a;touch run;",
    "a b",
    "a&b",
    "a|b",
    "a'b",
    'a"b',
    "a\nb",
    "a*",
    "~",
    "ü",
    "#",
]


@posix_only
@pytest.mark.parametrize("name", HOSTILE)
def test_a_folder_has_a_plain_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    hostile = tmp_path / name
    hostile.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(hostile))
    made = folders.make_folder()
    assert folders.is_harmless(made)
    assert made.stat().st_mode & 0o777 == 0o700
    assert not list(hostile.iterdir())
    made.rmdir()


@posix_only
def test_no_folder_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a b"))
    for others in ((), (str(tmp_path / "missing"),), (str(tmp_path / "open"),)):
        monkeypatch.setattr(folders, "_FALLBACKS", others)
        with pytest.raises(Error, match="TMPDIR"):
            folders.make_folder()
        with pytest.raises(Error, match="TMPDIR"):
            WorkerPool(1).request(ECHO, {"kind": "echo"})


@posix_only
def test_folders_of_killed_processes_are_removed(place: Path) -> None:
    abandoned, young, alive, foreign = (place / f"rlx-worker-{name}" for name in ("abandoned", "young", "alive", "x"))
    for made in (abandoned, young, alive):
        made.mkdir()
        (made / "stderr").touch()
    foreign.touch()
    for made in (abandoned, alive, foreign):
        os.utime(made, (0, 0))
    with folders.open_stderr(alive):
        os.utime(alive, (0, 0))
        folders.make_folder()
    assert not abandoned.exists()
    assert young.exists() and alive.exists() and foreign.exists()


def test_a_pool_that_is_dropped_leaves_nothing(place: Path) -> None:
    pool = WorkerPool(2)
    echo(pool)
    echo(pool, OTHER)
    pids = pool.pids
    del pool
    gc.collect()
    assert wait_until(lambda: all(map(is_gone, pids)))
    assert not list(place.iterdir())
