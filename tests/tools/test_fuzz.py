"""The fuzzing frame detects all kinds of failures, and a small sample of each kind finds nothing.

Longer runs: `python -m tools.fuzz --help`.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import rlx
from tests.drawing import drawn
from tools.fuzz import frame
from tools.fuzz.mutators import Mutator, damaged_bytes, tokens

SAMPLES = {"texts": 200, "dims": 200, "opt": 40, "bytecode": 4, "models": 60, "onnx": 60}


class Bad(frame.Kind):
    """Inputs, some with forbidden behaviour."""

    name = "bad"
    seconds = 5.0

    def make(self, rng: random.Random) -> bytes:
        return bytes([rng.choice((0, 0, 1, 2, 3, 4, 4, 4))])

    def attempt(self, data: bytes) -> None:
        match data[0]:
            case 0:
                raise rlx.Error("refused")
            case 1:
                raise KeyError("raw")
            case 2:
                os.kill(os.getpid(), signal.SIGSEGV)
            case 3:
                time.sleep(60)


KIND = Bad()


def test_the_frame_sees_exceptions_crashes_and_hangs(tmp_path: Path) -> None:
    def inputs(seed: int) -> list[int]:
        return [KIND.make(frame.random_of("tests.tools.test_fuzz", seed, i))[0] for i in range(8)]

    seed = next(s for s in range(1000) if set(inputs(s)) == {0, 1, 2, 3, 4} and inputs(s).count(3) == 1)
    kinds = inputs(seed)
    run = frame.Run("tests.tools.test_fuzz", seed, tmp_path)
    run.go(0, len(kinds))
    found = {f.index: f for f in run.findings}
    assert sorted(found) == [i for i, k in enumerate(kinds) if k in (1, 2, 3)]
    for i, finding in found.items():
        assert finding.file.read_bytes() == bytes([kinds[i]])
        assert {1: "KeyError", 2: "crash (SIGSEGV)", 3: "hang"}[kinds[i]] in finding.what
    assert (run.counts["refused"], run.counts["accepted"]) == (kinds.count(0), kinds.count(4))
    assert f"{len(kinds)} inputs" in run.report()


@drawn("kind", SAMPLES, of_each=2)
def test_a_sample_finds_nothing(kind: str, tmp_path: Path) -> None:
    run = frame.Run(kind, 0, tmp_path)
    run.go(0, SAMPLES[kind])
    assert not run.findings, run.report()
    assert run.counts["refused"] and sum(run.counts.values()) == SAMPLES[kind]


def test_an_input_is_what_its_seed_and_index_make_it() -> None:
    mutator = Mutator(["func.func @f() { return }\n"] * 3, ['"a"', "1"])
    made = [[mutator.text(frame.random_of("x", 7, i)) for i in range(50)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 20
    assert damaged_bytes(b"abc" * 9, frame.random_of("x", 7, 0)) == damaged_bytes(
        b"abc" * 9, frame.random_of("x", 7, 0)
    )


def test_tokens_make_up_the_text() -> None:
    text = 'module { %0 = "rlx.a"(%b) {x = -1.5e3 : f32, y = "\\"é"} : (tensor<?x4xf32>) -> () } // [\n'
    assert "".join(tokens(text)) == text
    assert '"rlx.a"' in tokens(text)
