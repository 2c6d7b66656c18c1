"""Interrupts: at a random step of a user's action, or by a real signal at a random time.

An input determines the action, and the time of the interrupt. Only `KeyboardInterrupt` may be raised. Afterwards
everything works, also in other threads, and files are the old ones or the new ones.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tools.fuzz.frame import Kind

_LONGEST_S = 0.6  # until a signal is sent


class Interrupts(Kind):
    name = "interrupts"
    suffix = ".json"
    seconds = 30.0

    def prepare(self) -> None:
        import numpy as np

        import rlx

        # A shell makes its background jobs, and their children, ignore interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.np, self.rlx = np, rlx
        self.package = str(Path(rlx.__file__).parent)
        self.session = rlx.Session(threads=1)
        self.folder = Path(tempfile.mkdtemp(prefix="rlx-fuzz-interrupts-"))
        self.x = np.ones(4, np.float32)
        self.program = self.session.compile(self._graph(), params={"w": self.x})
        w: Any = (g := rlx.Graph("loss")).param("w", (4,))
        g.set_outputs({"loss": g.sum(w * w)})
        self.step = rlx.train.TrainStep(g, rlx.train.SGD(0.0), params={"w": self.x}, threads=1)
        self.doings = {
            "compile": lambda: self.session.compile(self._graph(), cache=False),
            "compile with cache": lambda: self.session.compile(self._graph(), cache=self.folder / "cache"),
            "run": self._run,
            "save": lambda: self.program.save(self.folder / "saved.rlxa"),
            "checkpoint": self._checkpoint,
            "read and pass": self._read,
        }
        for doing in self.doings.values():
            doing()
        self.steps = {name: self._count(doing) for name, doing in self.doings.items()}

    def make(self, rng: random.Random) -> bytes:
        name = rng.choice(sorted(self.doings))
        if rng.random() < 0.3:
            when: dict[str, Any] = {"seconds": rng.random() ** 2 * _LONGEST_S}
        else:
            when = {"step": rng.randrange(self.steps[name])}
        return json.dumps({"do": name, **when}).encode()

    def attempt(self, data: bytes) -> Any:
        case = json.loads(data)
        doing = self.doings[case["do"]]
        try:
            if "seconds" in case:
                self._signalled(doing, case["seconds"])
            else:
                self._interrupted(doing, case["step"])
        except KeyboardInterrupt:
            pass
        found: list[BaseException | bool] = []
        checker = threading.Thread(target=self._check, args=(found,), daemon=True)
        checker.start()
        checker.join(25)
        if found != [True]:
            raise found[0] if found and isinstance(found[0], BaseException) else RuntimeError("nothing works any more")

    def _graph(self) -> Any:
        g: Any = self.rlx.Graph("scaled")
        x, w, n = g.input("x", (4,)), g.param("w", (4,)), g.state("n", ())
        g.update(n, n + 1.0)
        g.set_outputs([g.softmax(x) * w])
        return g

    def _run(self) -> None:
        for value in (1, 2):
            self.program.set_params({"w": self.x * value})
            self.program.run({"x": self.x})
        self.program.reset_state()

    def _checkpoint(self) -> None:
        self.step.set_params({"w": self.x})
        self.step()
        self.step.save(self.folder / "saved.safetensors")
        self.step.load(self.folder / "saved.safetensors")

    def _read(self) -> None:
        graph = self.rlx.parse(str(self._graph()))
        self.rlx.passes.run(graph, "builtin.module(rlx-decompose,canonicalize,cse)")

    def _check(self, found: list[BaseException | bool]) -> None:
        try:
            self._read()
            np, program = self.np, self.program
            program.set_params({"w": self.x})
            assert np.allclose(program.run({"x": self.x})[0], 0.25)
            for name in ("compile", "compile with cache"):
                fresh = self.doings[name]()
                fresh.set_params({"w": self.x})
                assert np.allclose(fresh.run({"x": self.x})[0], 0.25)
            self.rlx.load(self.folder / "saved.rlxa", params={"w": self.x})
            self.step.load(self.folder / "saved.safetensors")
            self.step.save(self.folder / "saved.safetensors")
            program.save(self.folder / "saved.rlxa")
            left = {path.name for path in self.folder.iterdir()} - {"saved.rlxa", "saved.safetensors", "cache"}
            assert not left, f"left behind: {left}"
            found.append(True)
        except BaseException as problem:
            found.append(problem)

    # --- times of the interrupt -------------------------------------------------------------------

    def _count(self, doing: Any) -> int:
        count = 0

        def visit() -> None:
            nonlocal count
            count += 1

        self._traced(doing, visit)
        return count

    def _interrupted(self, doing: Any, step: int) -> None:
        left = step

        def visit() -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise KeyboardInterrupt

        self._traced(doing, visit)

    def _traced(self, doing: Any, visit: Any) -> None:
        def trace(frame: Any, event: str, _: Any) -> Any:
            # Python ignores exceptions in `__del__`.
            if not frame.f_code.co_filename.startswith(self.package) or frame.f_code.co_name == "__del__":
                return None
            if event == "line":
                visit()
            return trace

        sys.settrace(trace)
        try:
            doing()
        finally:
            sys.settrace(None)

    def _signalled(self, doing: Any, seconds: float) -> None:
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        try:
            doing()
        finally:
            timer.cancel()
            timer.join()


KIND = Interrupts()
