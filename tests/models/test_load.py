"""`rlx.models.load`, compared with the transformers package for the same weights (`references.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models import PretrainedModel, load
from rlx.models.model import FAMILIES
from tests.conformance.compiled import compile_graphs, contiguous
from tests.conformance.levels import at_any_level
from tests.drawing import drawn
from tests.models.references import NAMES, arrays, reference, weights, write_model

Arrays = dict[str, np.ndarray]

# The others differ from these only in constants, or in properties that the evaluator also covers.
_SIMILAR = {
    *(
        "bert_sequence",
        "distilbert_answer",
        "mpnet_long",
        "vit",
        "gemma",
        "mistral",
        "phi",
        "phi3",
        "phi3_short",
        "mixtral",
        "qwen3_moe",
    ),
    *("llama4", "smollm3", "granite", "olmo3", "stablelm", "gpt_neox", "gpt_neox_sequential", "falcon", "deepseek_v2"),
    *("deepseek_v2_groups", "mamba2"),
}
COMPILED = [n for n in NAMES if n not in _SIMILAR]
COMPILED = [n for n in COMPILED if not n.startswith("llama_") or n == "llama_biases"]
_SHARES = 3


def sizes_of(content: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a graph: the sizes of the inputs, and options."""
    shape: Any = next(iter(arrays(content["inputs"]).values())).shape
    sizes = {"batch": shape[0]} if len(shape) > 2 else {"batch": shape[0], "sequence": shape[1]}
    return sizes | content["options"]


def all_inputs(content: dict[str, Any], graph: Any) -> Arrays:
    """Return the inputs of the graph. If the reference has no mask, the mask is all ones."""
    given = arrays(content["inputs"])
    ids = next(iter(given.values()))
    return {a.name: given.get(a.name, np.ones(ids.shape, np.int32)) for a in graph.inputs}


def check(content: dict[str, Any], outputs: dict[str, np.ndarray], tolerance: float) -> None:
    """Compare outputs with those of the reference. Outputs at padding are ignored."""
    expected = arrays(content["outputs"])
    assert set(outputs) >= set(expected)
    for name, array in expected.items():
        assert outputs[name].shape == array.shape
        seen = np.ones(array.shape, bool)
        mask = np.array(content["inputs"].get("attention_mask", 1))
        if array.shape[:2] == mask.shape:
            seen = np.broadcast_to(mask.reshape(*mask.shape, *[1] * (array.ndim - 2)) == 1, array.shape)
        scale = np.abs(array[seen]).max()
        np.testing.assert_allclose(outputs[name][seen], array[seen], rtol=0, atol=tolerance * scale, err_msg=name)


def named(graph: Any, results: list[np.ndarray]) -> Arrays:
    return {output.name: array for output, array in zip(graph.outputs, results, strict=True)}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PretrainedModel]:
    """Return the models of all references. Every other one is in two files."""
    folder = tmp_path_factory.mktemp("models")
    written = {}
    for i, name in enumerate(NAMES):
        content = reference(name)
        written[name] = write_model(folder / name, content["config"], weights(content["tensors"]), 1 + i % 2)
    return {name: load(path) for name, path in written.items()}


def test_every_family_has_a_reference() -> None:
    alike = {"camembert": "roberta", "xlm-roberta": "roberta", "gemma3": "gemma3_text", "llama4": "llama4_text"}
    whole = [
        name for name, family in FAMILIES.items() if family.encoder is None
    ]  # test_encoder_decoder.py has the others
    assert {alike.get(name, name) for name in whole} == {reference(name)["config"]["model_type"] for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_evaluated(models: dict[str, PretrainedModel], name: str) -> None:
    content = reference(name)
    graph = models[name].graph(**sizes_of(content))
    # transformers computes the state of Qwen3-Next in f32.
    tolerance = 2e-5 if name == "qwen3_next" else 2e-6
    check(content, named(graph, rlx.evaluate(graph, all_inputs(content, graph))), tolerance)


def of_inputs_alone(graph: Any) -> Any:
    """Return the graph at MIR with its parameters as inputs, because a module of many graphs cannot have weights."""
    lowered = rlx.passes.run(graph, "builtin.module(rlx-lower-blocks)")
    return rlx.parse(str(lowered).replace('rlx.kind = "param"', 'rlx.kind = "input"'))


@at_any_level()
@drawn("share", range(_SHARES))
def test_compiled(models: dict[str, PretrainedModel], share: int, level: str | None) -> None:
    names = COMPILED[share::_SHARES]
    graphs = [of_inputs_alone(models[name].graph(**sizes_of(reference(name)))) for name in names]
    for name, program in zip(names, compile_graphs(graphs, level=level), strict=True):
        assert program.problem is None, f"{name}: {program.problem}"
        if program.lacks is not None:
            continue
        content, graph = reference(name), models[name].graph(**sizes_of(reference(name)))
        given = all_inputs(content, graph) | {n: w.numpy() for n, w in models[name].weights.items()}
        results = program.run(contiguous([given[a.name] for a in graph.arguments]))
        check(content, named(graph, results), 2e-5)
