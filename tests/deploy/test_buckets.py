"""Files of programs with buckets."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.artifacts.archive import MANIFEST, Archive
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.container import pack_archive
from tests.cli.calling import Command
from tests.runtime.test_buckets import weighted
from tools.fuzz.kinds import artifacts as fuzzed

W = np.array([2, 3], np.float32)
BUCKETS = {"n": [2, 4]}


@pytest.fixture(scope="module")
def bucketed() -> rlx.Program:
    return rlx.Session(threads=1).compile(weighted(), params={"w": W}, buckets=BUCKETS)


def same(program: rlx.Program) -> None:
    assert program.buckets == {"n": (2, 4)} and str(program.inputs[0].shape) == "f32[n, 2]"
    for n in (1, 2, 3, 4):
        x = np.full((n, 2), n, np.float32)
        y, total = program.run({"x": x})
        np.testing.assert_array_equal(y, x * W)
        assert total == x.sum()


def test_a_file_has_all_buckets_and_the_weights_once(bucketed: rlx.Program, tmp_path: Path) -> None:
    path = tmp_path / "p.rlxa"
    bucketed.save(path, params=True)
    loaded = rlx.deploy.load(path)
    same(loaded)
    loaded.save(tmp_path / "again.rlxa", params=True)
    assert (tmp_path / "again.rlxa").read_bytes() == path.read_bytes()
    assert loaded.program_for(n=3).artifact == bucketed.program_for(n=4).artifact
    for copied in (copy.deepcopy(bucketed), pickle.loads(pickle.dumps(loaded))):
        same(copied)
    with pytest.raises(rlx.Error, match=r"p.rlxa has programs for buckets: n: 2, 4\n.*rlx.load gives them all"):
        Artifact.load(path)


def test_a_file_for_two_targets(bucketed: rlx.Program, tmp_path: Path) -> None:
    other = rlx.Session("xla").compile(weighted(), buckets=BUCKETS)
    bucketed.save(tmp_path / "p.rlxa", other, params=True)
    for target in ("cpu", "xla"):
        program = rlx.load(tmp_path / "p.rlxa", target=target, threads=1)
        same(program)
        assert program.program_for(n=1).artifact.target == target
    different = rlx.Session("xla").compile(weighted(), buckets={"n": [2, 3]})
    with pytest.raises(
        rlx.Error, match="expected a program with the buckets n: 2, 4, got one with the buckets n: 2, 3"
    ):
        bucketed.save(tmp_path / "q.rlxa", different)
    with pytest.raises(rlx.Error, match="the buckets n: 2, 4, got one with no buckets"):
        bucketed.save(tmp_path / "q.rlxa", bucketed.program_for(n=2))
    assert not (tmp_path / "q.rlxa").exists()


def test_a_manifest_that_lies_is_refused(bucketed: rlx.Program, tmp_path: Path) -> None:
    bucketed.save(tmp_path / "p.rlxa", params=True)
    document, others = fuzzed.members((tmp_path / "p.rlxa").read_bytes())
    (entry,) = document["entries"]
    first, second = entry["buckets"]

    def refused(message: str, **changes: Any) -> None:
        manifest = fuzzed.sealed({**copy.deepcopy(document), "entries": [{**entry, **changes}]}, {})
        with pytest.raises(rlx.Error, match=message):
            Archive.from_bytes(pack_archive({MANIFEST: json.dumps(manifest).encode(), **others}))

    refused("not all combinations of their sizes, in order", buckets=[second, first])
    refused("not all combinations", buckets=[first, {**second, "sizes": {"n": 2}}])
    refused("have different symbols, or none", buckets=[first, {**second, "sizes": {"m": 4}}])
    refused("have different symbols, or none", buckets=[{**each, "sizes": {}} for each in entry["buckets"]])
    refused("the graph has no symbol 'm'", buckets=[{**b, "sizes": {"m": b["sizes"]["n"]}} for b in entry["buckets"]])
    refused("expected an integer from 1", buckets=[{**first, "sizes": {"n": 0}}, second])
    refused("'x' is .* for the bucket", buckets=[{**first, "sizes": {"n": 3}}, second])
    refused("has no program", buckets=[{**first, "programs": []}, second])
    refused("buckets and programs without sizes", programs=first["programs"])
    refused("has no program", buckets=[])
    wrong = copy.deepcopy(first)
    wrong["signature"]["outputs"].reverse()
    refused("the signature for the bucket .* is not that of the entry point", buckets=[wrong, second])
    state = {**entry["signature"]["arguments"][1], "name": "s", "kind": "state"}
    signature = {**entry["signature"], "arguments": [*entry["signature"]["arguments"], state]}
    refused("has states", signature=signature)


def test_the_command_line(bucketed: rlx.Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, command = tmp_path / "p.rlxa", Command(capsys)
    bucketed.save(path, params=True)
    shown = command.output("inspect", path)
    assert "buckets: n: 2, 4" in shown and "input x: f32[n, 2]" in shown
    assert "@weighted compiled for cpu" in shown and "with n = 2," in shown and "with n = 4," in shown
    shown = command.output("run", path, "--input=x=3x2xf32=1")
    assert "y: f32[3, 2]\n[[2. 3.]\n [2. 3.]\n [2. 3.]]" in shown and "total: f32[]\n6" in shown
    assert "n = 5 is larger than the largest bucket" in command.error("run", path, "--input=x=5x2xf32=1")
