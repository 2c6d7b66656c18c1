"""Pipelines as text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.passes import native
from rlx.passes.lower_blocks import LowerBlocks
from rlx.passes.pipeline import PassPipeline
from rlx.passes.simplification.constant_fold import ConstantFold


@pytest.mark.parametrize(
    ("text", "printed", "names"),
    [
        ("cse", "builtin.module(cse)", "cse"),
        ("builtin.module()", "builtin.module()", ""),
        ("", "builtin.module()", ""),
        ("any(cse)", "any(cse)", "cse"),
        ("func.func(cse)", "builtin.module(func.func(cse))", "cse"),
        (
            " builtin.module( rlx-lower-blocks , func.func( canonicalize , cse ) )",
            "builtin.module(rlx-lower-blocks,func.func(canonicalize,cse))",
            "rlx-lower-blocks canonicalize cse",
        ),
        (
            "rlx-decompose{ except=softmax,attention   ops=gelu },canonicalize{max-iterations=5 top-down}",
            "builtin.module(rlx-decompose{except=softmax,attention ops=gelu},canonicalize{max-iterations=5 top-down})",
            "rlx-decompose canonicalize",
        ),
        ('rlx-bind{seq="2 * n"}', 'builtin.module(rlx-bind{seq="2 * n"})', "rlx-bind"),
        ("rlx-bind{seq=max(n,3)}", "builtin.module(rlx-bind{seq=max(n,3)})", "rlx-bind"),
        (
            "inline{op-pipelines={func.func(canonicalize,cse)}}",
            "builtin.module(inline{op-pipelines={func.func(canonicalize,cse)}})",
            "inline",
        ),
    ],
)
def test_text_is_parsed_and_printed(text: str, printed: str, names: str) -> None:
    pipeline = PassPipeline.parse(text)
    assert str(pipeline) == printed
    assert pipeline.names == tuple(names.split())
    assert str(PassPipeline.parse(printed)) == printed


def test_a_pipeline_is_made_of_text_and_passes() -> None:
    pipeline = PassPipeline.of([LowerBlocks(), "func.func(canonicalize),cse", ConstantFold(max_elements=9)])
    assert str(pipeline) == (
        "builtin.module(rlx-lower-blocks,func.func(canonicalize),cse,rlx-constant-fold{max-elements=9})"
    )
    assert PassPipeline.of(pipeline) is pipeline
    assert PassPipeline.of(LowerBlocks()).steps[0].ours == LowerBlocks()


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("builtin.module(cse,canonicalise)", 20, "'canonicalise' is not a pass (did you mean 'canonicalize'?)"),
        ("cse, rlx-simplif", 6, "did you mean 'rlx-simplify'?"),
        ("zzzzzz", 1, "'zzzzzz' is not a pass"),
        ("rlx-bind{seq=}", 10, "option 'seq' takes a size, not ''"),
        ("rlx-prune-regions{x=1}", 19, "rlx-prune-regions has no option 'x'; it takes none"),
        ("rlx-precision{to=f16 policy=mixd}", 22, "did you mean 'mixed'?"),
        ("canonicalize{max-iterations=}", 14, "'max-iterations' takes an integer, not ''"),
        ("canonicalize{top-down=up}", 14, "'top-down' takes true or false, not 'up'"),
        ("cse,,cse", 5, "expected the name of a pass or an op, got ','"),
        ("cse)", 4, "expected ',' or the end, got ')'"),
        ("func.func(cse", 14, "expected ',' or ')' in the list of 'func.func', got the end"),
        ("cse{", 5, "the options of 'cse' are not closed"),
        ('rlx-bind{seq="3}', 14, "the value is not closed"),
        ("cse{=3}", 5, "expected an option of 'cse'"),
        ("func.func", 1, "'func.func' is an op: name the passes to run on it, func.func(…)"),
        ("rlx-simplify(cse)", 1, "'rlx-simplify' is a pass: write its options in braces"),
        ("func.func(rlx-simplify)", 11, "'rlx-simplify' runs on builtin.module, not on 'func.func'"),
    ],
)
def test_an_error_has_the_column_and_a_suggestion(text: str, column: int, message: str) -> None:
    with pytest.raises(rlx.PassError) as caught:
        PassPipeline.parse(text)
    assert caught.value.location == f"pipeline:1:{column}"
    shown, line, caret = caught.value.message.split("\n")
    assert message in shown
    assert line == f"  {text}"
    assert caret == " " * (column + 1) + "^"


def test_an_error_in_the_second_line_is_shown_there() -> None:
    with pytest.raises(rlx.PassError) as caught:
        PassPipeline.parse("cse,\n  csee,\ncse")
    assert caught.value.location == "pipeline:2:3"
    assert caught.value.message.split("\n")[1:] == ["    csee,", "    ^"]


@settings(max_examples=300)
@given(st.text(alphabet="abcsernlx-.,(){}=\"' 1", max_size=30))
def test_any_text_is_a_pipeline_or_a_pass_error(text: str) -> None:
    try:
        pipeline = PassPipeline.parse(text)
    except rlx.PassError as problem:
        assert problem.location is not None and problem.location.startswith("pipeline:1:")
    else:
        assert str(PassPipeline.parse(str(pipeline))) == str(pipeline)


def test_the_list_of_mlir_passes_is_what_the_provider_has() -> None:
    names = native.names()
    assert {"canonicalize", "cse", "symbol-dce", "inline", "strip-debuginfo"} <= names.keys()
    missing = [n for n in names if (problem := native.check(n, (), f"any({n})")) and problem.unknown]
    assert missing == []
