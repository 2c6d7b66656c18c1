"""Files with several entry points: they are read back completely, and modified files are refused."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.artifacts.archive import MANIFEST, Archive
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.container import pack_archive
from tests.cli.calling import Command
from tests.runtime.test_entry_points import DECODE, GRAPHS, PARAMS, PREFILL, Meaning, same
from tools.fuzz.kinds import artifacts as fuzzed


@pytest.fixture(scope="module")
def cpu_programs() -> rlx.Program:
    return rlx.Session(threads=1).compile({name: graph() for name, graph in GRAPHS.items()}, params=PARAMS)


FRESH = """
import json, sys, numpy as np, rlx
p = rlx.deploy.load(sys.argv[1], threads=1)
p["prefill"].run({"x": np.ones((3, 4), np.float32), "at": 5})
total = p["decode"].run({"t": np.full((1, 4), 7, np.float32)})[0]
imported = sorted(name for name in sys.modules if name.startswith(("torch_mlir", "jax", "iree.compiler", "rlx.mlir")))
print(json.dumps([type(p).__name__, list(p), total.tolist(), p.state("own").tolist(), imported]))
"""


@pytest.mark.parametrize("place", ["inside", "beside"])
def test_a_file_runs_where_there_is_no_compiler(place: str, cpu_programs: rlx.Program, tmp_path: Path) -> None:
    path, beside = tmp_path / "p.rlxa", tmp_path / "p.irpa"
    cpu_programs.save(path, params=place == "inside", params_file=beside if place == "beside" else None)
    process = subprocess.run([sys.executable, "-c", FRESH, path], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    meaning = Meaning()
    meaning.run("prefill", PREFILL)
    total = meaning.run("decode", DECODE)[0]
    assert json.loads(process.stdout) == ["Program", ["prefill", "decode"], total.tolist(), 2.5, []]
    if place == "beside":
        beside.write_bytes(b"x" + beside.read_bytes()[1:])
        with pytest.raises(rlx.Error, match=r"p.irpa is damaged, or another one"):
            rlx.load(path)
        assert rlx.load(path, params=PARAMS)["decode"].run(DECODE)


def test_a_file_for_two_targets(cpu_programs: rlx.Program, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    path = tmp_path / "p.rlxa"
    other = rlx.Session("xla").compile({name: graph() for name, graph in GRAPHS.items()})
    cpu_programs.save(path, other, params=True)
    assert path.stat().st_size < 200_000
    for target in ("cpu", "xla"):
        p = rlx.load(path, target=target)
        assert {p[name].artifact.target for name in p} == {target}
        same(p["prefill"].run(PREFILL)[:1], [np.ones((3, 4), np.float32) * PARAMS["w"]])
    with pytest.raises(rlx.Error, match="entry 'prefill' has no program for 'cuda'"):
        rlx.load(path, target="cuda")
    with pytest.raises(rlx.Error, match="two programs for cpu"):
        cpu_programs.save(path, cpu_programs)
    message = "expected a program with the entry points prefill, decode, got a program of a single graph"
    with pytest.raises(rlx.Error, match=message):
        cpu_programs.save(path, cpu_programs["decode"])
    with pytest.raises(rlx.Error, match=r"has several entry points: 'prefill', 'decode'\n.*rlx\.load gives them all"):
        Artifact.load(path)


def test_weights_that_are_not_set(cpu_programs: rlx.Program, tmp_path: Path) -> None:
    cpu_programs.save(tmp_path / "p.rlxa")
    p = rlx.load(tmp_path / "p.rlxa")
    with pytest.raises(rlx.Error, match=r"2 parameters are not set: 'w' .*'k'"):
        p.save(tmp_path / "q.rlxa", params=True)
    assert not (tmp_path / "q.rlxa").exists()
    p.set_param("w", PARAMS["w"])
    p["prefill"].run(PREFILL)
    with pytest.raises(rlx.Error, match="1 parameters are not set: 'k'"):
        p["decode"].run(DECODE)
    assert p.state("own") == 0.5  # which needs no program
    p["prefill"].save(tmp_path / "one.rlxa", params=True)
    assert rlx.load(tmp_path / "one.rlxa").names == ()


def test_a_manifest_that_lies_is_refused(cpu_programs: rlx.Program, tmp_path: Path) -> None:
    path = tmp_path / "p.rlxa"
    cpu_programs.save(path, params=True)
    document, others = fuzzed.members(path.read_bytes())

    def refused(message: str, **changes: Any) -> None:
        manifest = fuzzed.sealed({**copy.deepcopy(document), **changes}, {})
        with pytest.raises(rlx.Error, match=message):
            Archive.from_bytes(pack_archive({MANIFEST: json.dumps(manifest).encode(), **others}))

    first, second = document["entries"]
    refused("two entries have the same name|not the programs", entries=[first, {**second, "name": "prefill"}])
    refused("not the programs that its manifest has", entries=[second, first])
    refused("the program has no such parameter", entries=[first])
    refused("not the programs that its manifest has", entries=[first], parameters=None)
    refused("not the programs that its manifest has", entries=[])
    refused("the entry 'z' has no program", entries=[first, second, {**second, "name": "z", "programs": []}])
    refused("expected a name", entries=[first, {**second, "name": ""}])
    wrong = copy.deepcopy(second)
    next(a for a in wrong["signature"]["arguments"] if a["name"] == "w")["dims"] = [5]
    refused(r"'w' is a parameter f32\[4\] in 'prefill' and a parameter f32\[5\] in 'decode'", entries=[first, wrong])
    places = {**document["parameters"]["places"], "v": [0, [4]]}
    refused("the program has no such parameter", parameters={**document["parameters"], "places": places})
    refused("one of several entry points has no name|not the programs", entries=[{**first, "name": None}, second])
    refused("format 5, this version reads 7", format=5)
    assert Archive.from_bytes(path.read_bytes()).names == ("prefill", "decode")


def test_a_single_graph_is_an_entry_point_without_a_name(cpu_programs: rlx.Program, tmp_path: Path) -> None:
    cpu_programs["decode"].save(tmp_path / "single.rlxa", params=True)
    document, others = fuzzed.members((tmp_path / "single.rlxa").read_bytes())
    assert [entry["name"] for entry in document["entries"]] == [None]
    assert next(iter(others)).startswith("programs/0-cpu-")
    named = {**document, "entries": [{**document["entries"][0], "name": "decode"}]}
    renamed = {key.replace("0-cpu", "0-decode-cpu"): data for key, data in others.items()}
    manifest = json.dumps(fuzzed.sealed(named, renamed)).encode()
    (tmp_path / "named.rlxa").write_bytes(pack_archive({MANIFEST: manifest, **renamed}))
    single, programs = rlx.load(tmp_path / "single.rlxa"), rlx.load(tmp_path / "named.rlxa")
    assert list(single) == [] and list(programs) == ["decode"]
    expected = single.run(DECODE)
    same(programs["decode"].run(DECODE), expected)
    programs.reset_state()
    same(programs.run(DECODE), expected)  # a single entry point is called by its name, or directly
    for path in ("single.rlxa", "named.rlxa"):
        assert Artifact.load(tmp_path / path).signature == single.artifact.signature


def test_the_command_line(cpu_programs: rlx.Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, command = tmp_path / "p.rlxa", Command(capsys)
    cpu_programs.save(path, params=True)
    shown = command.output("inspect", path)
    assert "2 entry points: prefill, decode" in shown and "prefill: @fill compiled for cpu" in shown
    assert "state own: f32[]" in shown and "parameters with values: 2" in shown
    assert "own: f32[]\n0.5" in command.output("run", path, "--entry=decode", "--input=t=1x4xf32=7")
    for options, message in (
        ([], "has several entry points: 'prefill', 'decode'\n  hint: name one: --entry='prefill'"),
        (["--entry=decod"], "has no entry point 'decod' (did you mean 'decode'?); it has 'prefill', 'decode'"),
        (["--entry=decode", "--param=x=1xf32=1"], "there is no param 'x'"),
    ):
        assert message in command.error("run", path, *options)
