"""Kills: of a worker process during compilation or idle, and of a whole process during compilation and saving.

The compilation succeeds or raises an `rlx.Error` with the correct cause. Files are the old ones or the new ones, the
next process can use them, and no process remains.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tools.fuzz.frame import Kind

_SIGNALS = ("SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT")

_VICTIM = """
import sys
import numpy as np
import rlx

folder = sys.argv[1]
w = (g := rlx.Graph("loss")).param("w", (1000,))
g.set_outputs({"loss": g.sum(w * w)})
step = rlx.train.TrainStep(g, rlx.train.SGD(0.1), params={"w": np.ones(1000, np.float32)}, threads=1, cache=folder + "/cache")
print("ready", flush=True)
for i in range(10**9):
    step()
    step.save(folder + "/saved.safetensors")
    step.compiled.save(folder + "/saved.rlxa")
    h = rlx.Graph("h")
    h.set_outputs([h.input("x", (4,)) * float(i % 3)])
    if i % 5 == 0:
        rlx.Session(threads=1).compile(h, cache=folder + "/cache" if i % 10 else False)
"""


class Kills(Kind):
    name = "kills"
    suffix = ".json"
    seconds = 60.0

    def prepare(self) -> None:
        import numpy as np

        import rlx
        from rlx.targets.iree.process import default_pool

        self.np, self.rlx, self.pool = np, rlx, default_pool
        self.session = rlx.Session(threads=1)
        self.folder = Path(tempfile.mkdtemp(prefix="rlx-fuzz-kills-"))

    def make(self, rng: random.Random) -> bytes:
        if rng.random() < 0.8:
            kills = [rng.random() ** 2 * 0.8 for _ in range(rng.choice((1, 1, 2, 8)))]
            case: dict[str, Any] = {"kill": "worker", "signal": rng.choice(_SIGNALS), "after": sorted(kills)}
        else:
            case = {"kill": "process", "early": rng.random() < 0.3, "after": [rng.random() * 1.0]}
        return json.dumps(case).encode()

    def attempt(self, data: bytes) -> Any:
        case = json.loads(data)
        if case["kill"] == "worker":
            self._kill_worker(case["after"], getattr(signal, case["signal"]))
        else:
            self._kill_process(case["after"][0], case["early"])

    def _compile(self) -> None:
        g: Any = self.rlx.Graph("g")
        g.set_outputs([g.softmax(g.input("x", (4,)))])
        program = self.session.compile(g, cache=False)
        assert self.np.allclose(program.run({"x": self.np.ones(4, self.np.float32)})[0], 0.25)

    def _kill_worker(self, after: list[float], number: int) -> None:
        timers = [threading.Timer(seconds, self._kill_all, (number,)) for seconds in after]
        for timer in timers:
            timer.start()
        try:
            self._compile()
        except self.rlx.CompileError as problem:
            killed = number in (signal.SIGKILL, signal.SIGTERM)
            assert not (killed and "does not know" in str(problem)), f"the wrong one is blamed: {problem}"
        finally:
            for timer in timers:
                timer.cancel()
                timer.join()
        self._compile()
        assert len(self.pool.pids) <= 2

    def _kill_all(self, number: int) -> None:
        for pid in self.pool.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _kill_process(self, seconds: float, early: bool) -> None:
        command = [sys.executable, "-c", _VICTIM, str(self.folder)]
        victim = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert victim.stdout is not None
        if not early:
            assert victim.stdout.readline() == "ready\n", victim.communicate()[1]
        time.sleep(seconds)
        children = _children(victim.pid)
        victim.kill()
        victim.communicate()
        end = time.monotonic() + 20
        while any(map(_lives, children)):
            assert time.monotonic() < end, "a process stays behind"
            time.sleep(0.01)
        self._check_files()

    def _check_files(self) -> None:
        saved = self.folder / "saved.safetensors"
        w: Any = (g := self.rlx.Graph("loss")).param("w", (1000,))
        g.set_outputs({"loss": g.sum(w * w)})
        optimizer = self.rlx.train.SGD(0.1)
        step = self.rlx.train.TrainStep(g, optimizer, threads=1, cache=self.folder / "cache")
        if saved.exists():
            step.load(saved)
            values = step.params()["w"]
            assert self.np.all(values == values[0]), "a mixture of two steps"
            step.save(saved)
        if (self.folder / "saved.rlxa").exists():
            self.rlx.load(self.folder / "saved.rlxa")
            step.compiled.save(self.folder / "saved.rlxa")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


KIND = Kills()
