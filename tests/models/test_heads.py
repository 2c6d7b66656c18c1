"""Heads: each family with each of its heads against the transformers package, and files that do not name their head."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models import load
from rlx.models.heads import head_of_class
from rlx.models.model import FAMILIES
from tests.models.references import reference, weights, write_model
from tools.model_references import CASES

SEQUENCE, TOKEN, ANSWER, MASKED = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMaskedLM",
)
_TEXT = (SEQUENCE, TOKEN, ANSWER, MASKED)
# The configurations of references, and the heads that are tested with them. Decoders share the code of their heads.
HEADS = {
    **dict.fromkeys(("bert", "roberta", "distilbert", "mpnet", "modernbert"), _TEXT),
    "vit": ("ForImageClassification",),
    **dict.fromkeys(("llama", "gpt2", "falcon", "gpt_neox"), (SEQUENCE, TOKEN, ANSWER)),
    **dict.fromkeys(("qwen2", "gemma3", "phi3", "stablelm", "deepseek_v3", "olmo2", "mixtral"), (SEQUENCE,)),
    "qwen3_next": (TOKEN,),
    "qwen3": (ANSWER,),
}
PAIRS = [(name, head) for name, heads in HEADS.items() for head in heads]
PAIRS += [("bert", "ForPreTraining"), ("bert", "ForNextSentencePrediction")]

Inputs = dict[str, np.ndarray]


def saved(name: str, head: str, folder: Path, **more: Any) -> Any:
    """Write the folder of a model of transformers with random weights, and return the model."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    case = CASES[name]
    is_text = case.model == "Gemma3"
    fields = {"pad_token_id": 0, **case.config, **more}
    fields["pad_token_id"] = 1 if case.padding else 0
    if head not in (ANSWER, "ForNextSentencePrediction"):
        fields["num_labels"] = 3
    config = getattr(transformers, f"{case.model}{'Text' if is_text else ''}Config")(**fields)
    config._attn_implementation = config._experts_implementation = "eager"
    model = getattr(transformers, f"{case.model}{'Text' if is_text else ''}{head}")(config).eval()
    generator = torch.Generator().manual_seed(len(name) + len(head))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.save_pretrained(folder)
    return model


def inputs_of(model: Any, names: list[str], padding: int) -> Inputs:
    """Return inputs of two rows. The second ends with padding."""
    rng = np.random.default_rng(3)
    if "pixel_values" in names:
        return {"pixel_values": rng.normal(size=(2, 3, 16, 16)).astype(np.float32)}
    ids, mask = rng.integers(3, 40, (2, 7)).astype(np.int32), np.ones((2, 7), np.int32)
    if "attention_mask" in names:
        mask[1, -2:] = 0
    every = {"input_ids": np.where(mask == 1, ids, padding).astype(np.int32), "attention_mask": mask}
    every["token_type_ids"] = ((np.arange(7) > 3) * np.ones_like(ids)).astype(np.int32)
    return {name: every[name] for name in names}


def check(model: Any, graph: Any, given: Inputs) -> None:
    """Compare the outputs of a graph with those of transformers, except at padding."""
    torch = importlib.import_module("torch")
    with torch.no_grad():
        expected = model(
            **{n: torch.tensor(a, dtype=torch.long if a.dtype.kind == "i" else None) for n, a in given.items()}
        )
    mask = given.get("attention_mask", np.ones((2, 7), np.int32))
    for output, array in zip(graph.outputs, rlx.evaluate(graph, given), strict=True):
        wanted = expected[output.name].numpy()
        assert array.shape == wanted.shape
        if array.shape[:2] == mask.shape:
            array, wanted = array[mask == 1], wanted[mask == 1]
        np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max(), err_msg=output.name)


@pytest.mark.parametrize(("name", "head"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_heads_have_the_results_of_transformers(name: str, head: str, tmp_path: Path) -> None:
    model = saved(name, head, tmp_path)
    own = load(tmp_path)
    assert own.head == head
    options = {"sequence": 7} if "sequence" in own.sizes else {}
    if "attention_mask" in own.sizes and name != "qwen3_next":  # recurrent layers have no mask
        options["attention_mask"] = True
    graph = own.graph(batch=2, **options)
    outputs = {
        ANSWER: ["start_logits", "end_logits"],
        "ForPreTraining": ["prediction_logits", "seq_relationship_logits"],
    }
    assert [o.name for o in graph.outputs] == outputs.get(head, ["logits"])
    check(model, graph, inputs_of(model, [a.name for a in graph.inputs], CASES[name].padding))
    is_labelled = head in (SEQUENCE, TOKEN, "ForImageClassification")
    assert dict(own.id2label) == ({i: f"LABEL_{i}" for i in range(3)} if is_labelled else {})


def test_every_family_has_heads() -> None:
    without = {"mamba", "mamba2"}  # transformers has only the language model
    assert {name for name, family in FAMILIES.items() if not family.heads and family.encoder is None} == without


def test_modern_bert_pools_by_the_mean(tmp_path: Path) -> None:
    options = {"classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True, "decoder_bias": False}
    model = saved("modernbert", SEQUENCE, tmp_path, **options, classifier_activation="relu")
    graph = load(tmp_path).graph(batch=2, sequence=7)
    check(model, graph, inputs_of(model, [a.name for a in graph.inputs], 0))


def folder_of(path: Path, name: str, change: Callable[[Inputs], Inputs] | None = None, **config: Any) -> Path:
    content = reference(name)
    tensors = weights(content["tensors"])
    fields = {n: v for n, v in (content["config"] | config).items() if v is not Ellipsis}
    return write_model(path, fields, change(tensors) if change else tensors)


def outputs_of(model: rlx.models.PretrainedModel) -> list[str]:
    return [o.name for o in model.graph(sequence=3).outputs]


def test_the_base_model_of_a_folder_with_a_head(tmp_path: Path) -> None:
    model = load(folder_of(tmp_path, "bert_sequence"), head=None)
    assert (model.head, dict(model.id2label), model.unused) == (None, {}, ("classifier.bias", "classifier.weight"))
    assert outputs_of(model) == ["last_hidden_state", "pooler_output"]
    llama = load(folder_of(tmp_path / "llama", "llama"), head=None)
    assert (outputs_of(llama), llama.unused) == (["last_hidden_state"], ("lm_head.weight",))


def test_a_base_class_with_the_tensors_of_a_head_is_not_silent(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "bert_sequence", architectures=["BertModel"])
    with pytest.warns(
        UserWarning, match=r"names BertModel.*have 'classifier.weight'.*head='ForSequenceClassification'"
    ):
        assert load(folder).head is None
    assert load(folder, head="BertForSequenceClassification").head == SEQUENCE


def test_a_class_whose_head_is_not_in_the_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "mpnet", architectures=["MPNetForMaskedLM"])
    with pytest.warns(
        UserWarning, match=r"names MPNetForMaskedLM, but the weights have no head, no 'lm_head.dense.weight'"
    ):
        assert outputs_of(load(folder))[0] == "last_hidden_state"
    assert load(folder, head=None).head is None
    partial = folder_of(
        tmp_path / "partial", "bert_masked_lm", lambda t: {n: a for n, a in t.items() if "transform.Layer" not in n}
    )
    with pytest.raises(rlx.Error, match=r"'cls.predictions.transform.LayerNorm.weight' \(f32\[32\]\) is missing"):
        load(partial)


@pytest.mark.parametrize(
    ("name", "named", "message"),
    [
        (
            "bert_sequence",
            "BertForMultipleChoice",
            "whose head 'ForMultipleChoice' is not supported for a bert; known are",
        ),
        ("bert_masked_lm", "BertLMHeadModel", "whose head 'ForCausalLM' is not supported"),
        ("gpt2", "GPT2DoubleHeadsModel", "whose head 'DoubleHeadsModel' is not supported"),
        (
            "llama",
            "LlamaForRewardModel",
            "whose head 'ForRewardModel' is not supported for a llama; known are ForCausalLM",
        ),
    ],
)
def test_other_heads_are_refused_by_name(name: str, named: str, message: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, name, architectures=[named])
    with pytest.raises(rlx.UnsupportedError, match=f"names {named}, {message}") as caught:
        load(folder)
    assert "head=None) loads the base model" in str(caught.value)


def test_files_without_a_class(tmp_path: Path) -> None:
    assert load(folder_of(tmp_path / "masked", "bert_masked_lm", architectures=...)).head == MASKED
    assert load(folder_of(tmp_path / "answer", "distilbert_answer", architectures=None)).head == ANSWER
    assert load(folder_of(tmp_path / "base", "bert", architectures=...)).head is None
    assert load(folder_of(tmp_path / "llama", "llama", architectures=...)).head == "ForCausalLM"
    with pytest.raises(rlx.Error, match=r"names no class in 'architectures', and the weights have 'score.weight'"):
        load(folder_of(tmp_path / "labels", "llama_sequence", architectures=[]))
    several = folder_of(tmp_path / "several", "modernbert_sequence", architectures=["HF_ColBERT"])
    with pytest.raises(
        rlx.Error, match=r"names the class 'HF_ColBERT', which is not known.*more than one task"
    ) as caught:
        load(several)
    assert "head=…) with one of 'ForSequenceClassification', 'ForTokenClassification'" in str(caught.value)
    assert load(several, head=TOKEN).graph(sequence=3).outputs[0].shape.dims == (1, 3, 2)


def test_heads_that_do_not_exist(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "bert")
    for value in ("ForSequenceClasification", 3, True, ["ForMaskedLM"]):
        with pytest.raises(rlx.Error, match="head must be 'auto', None or a head of a bert"):
            load(folder, head=value)  # type: ignore[arg-type]
    with pytest.raises(rlx.Error, match=r"'classifier.weight' .* is missing"):
        load(folder, head=SEQUENCE)
    with pytest.raises(rlx.Error, match="'architectures' must be a list with the name of a class"):
        load(folder_of(tmp_path / "bad", "bert", architectures="BertModel"))


def test_labels(tmp_path: Path) -> None:
    names = {"0": "negative", "1": "neutral", "2": "positive"}
    assert load(folder_of(tmp_path, "bert_sequence", id2label=names)).id2label[2] == "positive"
    for wrong in ({"0": "a"}, {"1": "a", "2": "b", "3": "c"}, ["a", "b", "c"], {"0": "a", "1": "b", "x": "c"}):
        with pytest.raises(rlx.Error, match=r"'id2label' must be an object with the keys 0 to 2: .* has 3 rows"):
            load(folder_of(tmp_path, "bert_sequence", id2label=wrong))
    message = r"config\.json: 'id2label' must be .*: 'classifier\.weight' has 3 rows, and the field has 4 keys, got"
    with pytest.raises(rlx.Error, match=message):
        load(folder_of(tmp_path, "bert_sequence", id2label={str(i): "a" for i in range(4)}))
    with pytest.raises(rlx.Error, match="'id2label' must be an object whose values are strings"):
        load(folder_of(tmp_path, "bert_sequence", id2label={"0": "a", "1": None, "2": []}))


@pytest.mark.parametrize("name", ["bert_sequence", "llama_sequence"])
def test_the_number_of_labels_is_that_of_the_weights(name: str, tmp_path: Path) -> None:
    layer = "classifier" if name.startswith("bert") else "score"
    own = {"num_labels": 3, "id2label": Ellipsis, "label2id": Ellipsis}
    assert len(load(folder_of(tmp_path, name, **own)).id2label) == 3
    for wrong in (2, 4, 5000):
        message = rf"config\.json: 'num_labels' must be 3, the number of rows of '{layer}\.weight', got {wrong}"
        with pytest.raises(rlx.Error, match=message):
            load(folder_of(tmp_path, name, **{**own, "num_labels": wrong}))
    for bad in (0, -3, 3.0, "3", True, [3]):
        with pytest.raises(rlx.Error, match=r"config\.json: 'num_labels' must be a positive integer, got"):
            load(folder_of(tmp_path, name, **{**own, "num_labels": bad}))
    assert load(folder_of(tmp_path, name, num_labels=7), head=None).head is None


def test_classifying_decoders_without_padding(tmp_path: Path) -> None:
    model = load(folder_of(tmp_path, "llama_sequence", pad_token_id=None))
    assert model.graph(batch=1, sequence="sequence").outputs[0].shape.dims == (1, 3)
    for batch in (2, "batch"):
        with pytest.raises(rlx.UnsupportedError, match=r"'batch' must be 1, got .*: config.json has no 'pad_token_id'"):
            model.graph(batch=batch)
    with pytest.raises(rlx.Error, match="graph has no size 'last'"):
        model.graph(last=True)
    with pytest.raises(rlx.Error, match="'pad_token_id' must be an integer or null"):
        load(folder_of(tmp_path / "bad", "llama_sequence", pad_token_id="<pad>"))


def test_symbolic_sizes(tmp_path: Path) -> None:
    model = load(folder_of(tmp_path, "llama_sequence"))
    ids = np.array([[5, 6, 7, 0, 0], [0, 8, 9, 4, 3], [0, 0, 0, 0, 0]], np.int32)
    (symbolic,) = rlx.evaluate(model.graph(batch="batch", sequence="sequence"), {"input_ids": ids})
    for row, length in enumerate((3, 5, 1)):  # the last token that is not padding
        (alone,) = rlx.evaluate(model.graph(sequence=length), {"input_ids": ids[row : row + 1, :length]})
        np.testing.assert_allclose(symbolic[row], alone[0], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "stem", "head"),
    [
        ("GPT2LMHeadModel", "GPT2", "LMHeadModel"),
        ("GPT2DoubleHeadsModel", "GPT2", "DoubleHeadsModel"),
        ("XLMWithLMHeadModel", "XLM", "WithLMHeadModel"),
        ("TransfoXLLMHeadModel", "TransfoXL", "LMHeadModel"),
        ("BertForMaskedLM", "Bert", "ForMaskedLM"),
        ("MarianMTModel", "Marian", "MTModel"),
        ("GPT2ValueHeadModel", "GPT2", "ValueHeadModel"),
        ("FSMTModel", "FSMT", None),
        ("GPT2Model", "GPT2", None),
    ],
)
def test_the_head_of_a_class_is_the_end_of_its_name(name: str, stem: str, head: str | None) -> None:
    assert head_of_class(name) == head
    assert name == f"{stem}{head or 'Model'}"
