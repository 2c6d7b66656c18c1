"""`rlx-opt --bisect` and `--reduce`: planted bugs are named, and reproduced in a few ops."""

from __future__ import annotations

import os
import shlex
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli import opt
from rlx.ir.dtype import DTYPES
from rlx.ir.shape import shape_of
from rlx.ir.text.modules import verify_module
from rlx.passes.checking.bisect import bisect, first_failure
from rlx.passes.checking.numerics import Comparison
from rlx.passes.checking.reduce import fails_alike, reduce
from rlx.passes.pattern import Pattern
from rlx.passes.pipeline import PassPipeline
from rlx.passes.rewrite import collect
from rlx.passes.rewrite_count import rewrites_counted
from rlx.passes.simplification import identities, simplify
from tests.drawing import graph_seed
from tests.passes import planted
from tests.passes.test_random_graphs import inputs, with_regions
from tools.mutations import MUTATIONS

PIPELINE = "rlx-lower-blocks,cse,rlx-simplify,canonicalize,rlx-decompose"
PLANTED = (
    (planted.swapped_difference, "result", "rlx-simplify changes the result of @main: output"),
    (planted.missing_axis, "verifier", "rlx-simplify gave an invalid module: 'rlx.softmax'"),
    (planted.raising, "error", "rlx-simplify: pattern 'raising' raised KeyError"),
)


def call(capsys: pytest.CaptureFixture[str], arguments: Sequence[object]) -> tuple[int, str, str]:
    code = opt.main([str(word) for word in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def is_right(before: Any, after: Any) -> bool:
    try:
        verify_module(after)
    except rlx.Error:
        return False
    return not Comparison().difference(before, after)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.mlir"
    path.write_text(str(planted.chain(0)))
    return path


@pytest.mark.parametrize(("wrong", "kind", "message"), PLANTED, ids=[entry[1] for entry in PLANTED])
def test_bisect_names_a_planted_pattern(
    monkeypatch: pytest.MonkeyPatch, seed: int, wrong: Pattern, kind: str, message: str
) -> None:
    planted.plant(monkeypatch, wrong)
    for number in range(3):
        graph = planted.chain(graph_seed(seed, number))
        culprit = bisect(graph.module, PIPELINE)
        assert culprit is not None and culprit.step.name == "rlx-simplify" and culprit.number == 3
        assert culprit.failure.kind == kind and culprit.failure.message.startswith(message)
        if kind == "error":  # the rewriting did not finish
            assert culprit.rewriting is None and "planted.py" in culprit.failure.location
            continue
        assert culprit.rewriting is not None and culprit.rewriting.name == f"pattern '{wrong.name}'"
        assert "planted.py" in culprit.rewriting.location
        for limit in (culprit.limit - 1, culprit.limit):
            module = graph.clone().module
            with rewrites_counted(limit) as counter:
                PassPipeline.of(PIPELINE).run(module, verify_each=False)
            assert counter.count == limit
            assert is_right(graph.module, module) == (limit < culprit.limit)


@pytest.mark.parametrize(("wrong", "kind", "message"), PLANTED, ids=[entry[1] for entry in PLANTED])
def test_reduce_shows_a_planted_pattern_in_a_few_ops(
    monkeypatch: pytest.MonkeyPatch, seed: int, wrong: Pattern, kind: str, message: str
) -> None:
    planted.plant(monkeypatch, wrong)
    for number in range(2):
        graph = planted.chain(graph_seed(seed, number))
        before = str(graph)
        test = fails_alike(graph.module, PIPELINE)
        small = reduce(graph.module, test)
        assert len(collect(graph.module)) >= 60 and str(graph) == before
        assert len(collect(small)) <= 5
        assert small.operation.verify()
        _, failure = first_failure(small, PassPipeline.of(PIPELINE).steps, Comparison())
        assert failure is not None and failure.kind == kind and failure.message.startswith(message)
        assert str(reduce(graph.module, test)) == str(small)


def test_reduce_goes_into_regions_and_through_functions(seed: int) -> None:
    for number in range(6):
        graph = with_regions(graph_seed(seed, number))
        names = sorted({op.name for op in collect(graph.module)})
        for name in names[:: max(1, len(names) // 3)]:
            small = reduce(graph.module, lambda m, name=name: name in {op.name for op in collect(m)})
            (left,) = [op for op in collect(small) if op.name == name][:1]
            assert small.operation.verify()
            inside = 0 if not len(left.regions) else 4  # a region has a yield
            # An unused result would disappear with its loop, and this loop may be inside another.
            assert len(collect(small)) <= 3 + inside, str(small)


def test_reduce_gives_symbols_small_sizes() -> None:
    g: Any = rlx.Graph("main")
    x = g.input("x", ("n", 12))
    g.set_outputs([g.exp(g.reshape(x, (3, "4*n")))])
    small = reduce(g.module, lambda m: [op.name for op in collect(m)] == ["rlx.reshape", "rlx.activation"])
    assert [shape_of(op.results[0]).dims for op in collect(small)] == [(1, 1), (1, 1)]


def test_a_right_pipeline_has_nothing_to_find(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert call(capsys, [file, "--rlx-simplify", "--cse", "--bisect"])[:2] == (
        0,
        "nothing is wrong: 2 passes ran, and kept all results\n",
    )
    code, out, err = call(capsys, [file, "--rlx-simplify", "--reduce"])
    assert (code, out) == (1, "") and "there is nothing to reduce" in err


def test_the_command_that_bisect_prints_repeats_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    planted.plant(monkeypatch, planted.swapped_difference)
    code, out, _ = call(capsys, [file, f"--pass-pipeline={PIPELINE}", "--bisect"])
    assert code == 1
    lines = out.splitlines()
    assert lines[1] == "pass: 3 of 5, rlx-simplify" and "pattern 'swapped_difference'" in lines[2]
    assert f"{file}:" in lines[3]
    before, after = lines.index("before:"), lines.index("after:")
    assert 'kind = "exp"' in "\n".join(lines[before:after]) and "stands for" in lines[lines.index("to repeat it:") - 1]
    command = lines[lines.index("to repeat it:") + 1].strip()
    limit = lines[-1].rpartition("=")[2]
    text = call(capsys, shlex.split(command)[1:])[1]
    without = call(capsys, [*shlex.split(command)[1:-1], f"--rewrite-limit={limit}"])[1]
    one, two, given = (rlx.parse(t) for t in (text, without, file.read_text()))
    assert Comparison().difference(given.module, one.module) and not Comparison().difference(given.module, two.module)


def test_inputs_may_be_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: Path, tmp_path: Path
) -> None:
    planted.plant(monkeypatch, planted.swapped_difference)
    arrays = tmp_path / "inputs.npz"
    words = [file, "--rlx-simplify", "--bisect", f"--inputs={arrays}"]
    np.savez(arrays, w=np.full((4, 6), np.nan, np.float32))  # NaN everywhere hides differences
    assert call(capsys, words)[0] == 0
    np.savez(arrays, w=np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6))
    assert call(capsys, words)[0] == 1
    np.savez(arrays, w=np.ones((4, 5), np.float32))
    assert "param 'w' must be f32[4, 6]" in call(capsys, words)[2]
    np.savez(arrays, z=np.ones((4, 6), np.float32))
    assert "an array is given for 'z'" in call(capsys, words)[2]
    assert call(capsys, [file, "--rlx-simplify", "--bisect", "--tolerance=100"])[0] == 0


def test_inputs_of_every_dtype_may_be_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Arrays from a `.npz` file, which has no ml_dtypes, are read with the dtypes of the arguments."""
    path = tmp_path / "inputs.npz"
    rows = [[0, 1, 0], [1, 0, 1]], [[1, 6, 1], [6, 1, 6]]
    arrays = {d.name: np.array(rows[d.bits > 2 and not d.is_bool]).astype(d.numpy) for d in DTYPES}
    given, fixed = rlx.Graph("f"), rlx.Graph("f")
    inputs = [given.input(d.name, (2, 3), d) for d in DTYPES]
    given.set_outputs({f"y_{x.dtype}": given.reverse(x, [0]) for x in inputs})
    for d in DTYPES:
        fixed.input(d.name, (2, 3), d)
    fixed.set_outputs({f"y_{n}": fixed.constant(array[::-1]) for n, array in arrays.items()})

    def said(**changed: np.ndarray) -> str:
        stored: dict[str, Any] = {
            n: a if rlx.dtype(n).is_numpys_own else a.view(f"V{a.itemsize}") for n, a in (arrays | changed).items()
        }
        np.savez(path, **stored)
        comparison = Comparison(given=dict(rlx.weights.open(path).items()))
        comparison.check_given(given.module)
        return comparison.difference(given.module, fixed.module)

    assert said() == "" and Comparison().difference(given.module, fixed.module)
    for n, array in arrays.items():
        assert f"y_{n}" in said(**{n: array[::-1]}), n
    with pytest.raises(rlx.Error, match=r"input 'f8e5m2' must be f8e5m2\[2, 3\], got float8_e5m2\[3\]"):
        said(f8e5m2=arrays["f8e5m2"][0])
    file = tmp_path / "f.mlir"
    file.write_text(str(given))
    said()
    assert call(capsys, [file, "--rlx-simplify", "--check-numerics", f"--inputs={path}"])[0] == 0


def test_a_command_says_what_is_interesting(capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path) -> None:
    script = tmp_path / "test.py"
    script.write_text("import sys\nsys.exit('exp' in open(sys.argv[1]).read())\n")
    output = tmp_path / "small.mlir"
    code, _, err = call(capsys, [file, f"--reduce={shlex.join([sys.executable, os.fspath(script)])}", "-o", output])
    assert code == 0 and "rlx-opt: reduce: 1 ops after" in err
    assert [op.name for op in collect(rlx.parse(output).module)] == ["rlx.activation"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reduce=/nonexistent/program"], "cannot run '/nonexistent/program'"),
        (["--reduce="], "takes a command"),
        (["--reduce='"], "No closing quotation"),
        (["--reduce=true"], "not interesting"),
        (["--reduce=sh -c 'exit 127'"], "the test could not be run (exit status 127)"),
        (["--reduce=false", "--cse"], "runs no passes"),
        (["--bisect", "--tolerance=-1"], "not negative"),
        (["--cse", "--bisect", "--inputs=/nonexistent/file.npz"], "no such file"),
        (["--rewrite-limit=x"], "takes a number"),
    ],
)
def test_a_wrong_use_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], file: Path, words: list[str], said: str
) -> None:
    output = file.with_name("out.mlir")
    code, out, err = call(capsys, [file, *words, "-o", output])
    assert (code, out) == (1, "") and said in err
    assert not output.exists()


def test_bisect_names_the_rule_that_a_bug_of_the_list_breaks(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    (bug,) = [mutation for mutation in MUTATIONS if mutation.name == "simplify: 0 - x is x"]
    source = Path(str(identities.__file__)).read_text()
    broken: Any = types.ModuleType(identities.__name__)
    exec(compile(source.replace(bug.old, bug.new), "broken.py", "exec"), vars(broken))
    monkeypatch.setattr(simplify, "_EXACT", (broken.EXACT,))
    for number in range(100):
        graph = with_regions(graph_seed(seed, number))
        culprit = bisect(graph.module, "rlx-simplify", Comparison(given=inputs(graph, number)))
        if culprit is not None:
            break
    assert culprit is not None and culprit.rewriting is not None
    assert culprit.rewriting.name == "pattern '0 - x -> x'"
    assert 'kind = "sub"' in culprit.rewriting.before[-1]
    comparison = Comparison(given=inputs(graph, number))
    small = reduce(graph.module, fails_alike(graph.module, "rlx-simplify", comparison))
    assert len(collect(small)) <= 5, str(small)
