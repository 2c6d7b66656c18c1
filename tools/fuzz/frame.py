"""The common frame: it creates inputs from a seed and an index, tries them in child processes, and stores findings.

A child process works through a shard. It writes each input to a file before it tries it, so that the input of a crash
or hang is available. The parent continues with the next input in a new process.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import importlib
import json
import os
import queue
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MEMORY = 8 << 30  # address space of a child, so that a runaway allocation ends the child instead of the machine
_START = 120.0  # seconds for a child to import everything and build its corpus


class Kind:
    """One kind of input: how it is created, and how it is tried."""

    name = ""
    suffix = ".bin"  # of the files that store findings
    seconds = 30.0  # time limit for one input

    def prepare(self) -> None:
        """Do the work that is needed once per child, such as building the corpus."""

    def make(self, rng: random.Random) -> bytes:
        """Return an input, determined by the state of `rng`."""
        raise NotImplementedError

    def attempt(self, data: bytes) -> Any:
        """Use an input as a user might.

        Raises:
            rlx.Error: The input is refused, which is correct.
            Exception: Anything else is a finding.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Finding:
    """A failure of one input."""

    index: int
    what: str  # the family: findings with the same cause have the same value
    detail: str
    file: Path

    def __str__(self) -> str:
        return f"#{self.index} {self.what}\n  input: {self.file}\n  {self.detail.strip()[-1500:]}"


def kind_of(name: str) -> Kind:
    """Return the kind of a name: of a file here, or of a dotted module name, which tests use."""
    return importlib.import_module(name if "." in name else f"tools.fuzz.kinds.{name}").KIND


def random_of(name: str, seed: int, index: int) -> random.Random:
    """Return the random generator for the input of an index."""
    return random.Random(f"{name}:{seed}:{index}")


# --- in the child ---------------------------------------------------------------------------------


def outcome_of(kind: Kind, data: bytes) -> tuple[str, str, str]:
    """Return `accepted`, `refused` or `found`; the family; details."""
    import rlx

    try:
        kind.attempt(data)
    except rlx.Error as problem:
        return "refused", type(problem).__name__, ""
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        where = [f for f in traceback.extract_tb(problem.__traceback__) if "/rlx/" in f.filename]
        last = f"{Path(where[-1].filename).name}:{where[-1].name}" if where else "outside"
        message = f": {str(problem)[:60]}" if isinstance(problem, AssertionError) else ""
        return "found", f"{type(problem).__name__} in {last}{message}", traceback.format_exc()
    return "accepted", "", ""


def child(name: str, seed: int, first: int, count: int) -> int:
    """Try a shard. The outcome of each input is a line of JSON on standard output."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Output of the code under test must not be mixed with the lines for the parent.
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    current = Path(os.environ["RLX_FUZZ_CURRENT"])
    kind = kind_of(name)
    kind.prepare()
    outcome_of(Kind(), b"")  # imports modules before time is measured
    print(json.dumps("ready"), file=lines)
    for index in range(first, first + count):
        data = kind.make(random_of(name, seed, index))
        current.write_bytes(data)
        print(json.dumps(["start", index]), file=lines)
        print(json.dumps([index, *outcome_of(kind, data)]), file=lines)
    return 0


# --- in the parent --------------------------------------------------------------------------------


class Run:
    """A run of one kind under one seed.

    Args:
        name: The kind.
        seed: Together with the index, it determines an input.
        save: The folder for inputs with findings.
        shard: The number of inputs per child process.
        seconds: The time limit for one input; None uses that of the kind.
    """

    def __init__(self, name: str, seed: int, save: Path, *, shard: int = 1000, seconds: float | None = None):
        self.kind, self.name, self.seed, self.save, self.shard = kind_of(name), name, seed, save, shard
        self.seconds = seconds or self.kind.seconds
        self.findings: list[Finding] = []
        self.counts: collections.Counter[str] = collections.Counter()
        self.slowest = (0.0, -1)

    def go(self, first: int, count: int, stop_after: float | None = None) -> None:
        """Try the inputs from `first` on."""
        end, deadline = first + count, time.monotonic() + (stop_after or float("inf"))
        with tempfile.TemporaryDirectory(prefix="rlx-fuzz-") as folder:
            while first < end and time.monotonic() < deadline:
                first = self._shard(first, min(self.shard, end - first), Path(folder) / "current", deadline)

    def _shard(self, first: int, count: int, current: Path, deadline: float) -> int:
        """Run one child. Return the index of the first input that has not been tried."""
        command = [sys.executable, "-m", "tools.fuzz", self.name, "--child"]
        command += [f"--seed={self.seed}", f"--first={first}", f"--count={count}"]
        errors = current.with_name("errors")
        with (
            errors.open("wb") as stderr,
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=os.environ | {"RLX_FUZZ_CURRENT": str(current)},
                start_new_session=True,
            ) as process,
        ):
            try:
                at = self._follow(process, first, first + count, current, errors, deadline)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # including its own children
        return at

    def _follow(
        self, process: subprocess.Popen[bytes], at: int, end: int, current: Path, errors: Path, deadline: float
    ) -> int:
        lines: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=_read, args=(process, lines), daemon=True).start()
        limit, started = _START, False
        began = time.monotonic()
        while at < end and (not started or time.monotonic() < deadline):
            try:
                line = lines.get(timeout=limit)
            except queue.Empty:
                process.send_signal(signal.SIGABRT)  # faulthandler prints where it hangs
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                line = "hang"
            if line == "ready":
                started, limit = True, self.seconds
            elif isinstance(line, list) and line[0] == "start":
                began = time.monotonic()
            elif isinstance(line, list):
                took = time.monotonic() - began
                self.slowest = max(self.slowest, (took, line[0]))
                self._count(line[0], line[1], line[2], line[3], current)
                at = line[0] + 1
            else:  # it hangs or is gone
                trace = errors.read_text(errors="replace")
                if not started:
                    raise RuntimeError(f"the child did not start:\n{trace}")
                code = process.wait() if line is None else 0
                what = f"hang of {limit:g} s" if line == "hang" else f"crash ({_signal_name(code)})"
                self._count(at, "found", f"{what} in {_place(trace)}", trace, current)
                return at + 1
        return at

    def _count(self, index: int, outcome: str, what: str, detail: str, current: Path) -> None:
        self.counts[outcome] += 1
        if outcome == "found":
            self.save.mkdir(parents=True, exist_ok=True)
            file = self.save / f"{self.kind.name}-{self.seed}-{index}{self.kind.suffix}"
            # The child may already be at the next input.
            file.write_bytes(self._again(index) if "crash" not in what and "hang" not in what else current.read_bytes())
            if all(f.what != what for f in self.findings):
                print(f"found: #{index} {what}: {file}", file=sys.stderr, flush=True)  # for long runs, report at once
            self.findings.append(Finding(index, what, detail, file))

    def _again(self, index: int) -> bytes:
        self.kind.prepare()
        return self.kind.make(random_of(self.name, self.seed, index))

    def report(self) -> str:
        """Return the results: counts, then each family with its first finding."""
        families = collections.Counter(f.what for f in self.findings)
        first = {f.what: f for f in reversed(self.findings)}
        counts = ", ".join(f"{n} {what}" for what, n in sorted(self.counts.items()))
        lines = [f"{self.name}, seed {self.seed}: {sum(self.counts.values())} inputs: {counts or 'none'}"]
        lines.append(f"slowest: #{self.slowest[1]}, {self.slowest[0]:.1f} s")
        lines += [f"\n{n} × {first[what]}" for what, n in families.most_common()]
        return "\n".join(lines)


def _read(process: subprocess.Popen[bytes], lines: queue.Queue[Any]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        with contextlib.suppress(ValueError):
            lines.put(json.loads(line))
    lines.put(None)


def _signal_name(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _place(trace: str) -> str:
    """Return the innermost line of this repository in a faulthandler trace."""
    for line in trace.splitlines():
        if line.startswith("  File ") and "/rlx/" in line:
            return line.rsplit("/", 1)[-1].replace('"', "")
    return "unknown code"
