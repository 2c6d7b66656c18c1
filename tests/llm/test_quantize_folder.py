"""Conversion of folders to GGUF files: names, changes and metadata as in the converter of llama.cpp; tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.llm.quantization.folder_tokenizer import tokenizer_pairs
from rlx.llm.quantization.pre_tokenizer_names import pre_tokenizer_name
from rlx.llm.quantization.quantize import quantize
from rlx.llm.tokenizer import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from rlx.models import load
from tests.llm.tokenizer import samples
from tests.models import gguf_files
from tests.models.adapter_samples import SampleAdapter
from tests.models.references import NAMES, WITH_LABELS, arrays, reference, weights, write_model

# A model of SentencePiece as `tokenizer.json`, of few tokens: the models of the references have small vocabularies.
TOKENS = ["<unk>", "<s>", "</s>", "<0x41>", "▁", "a", "b", "ab", "▁ab"]
TOKENIZER: dict[str, Any] = {
    "added_tokens": [{"id": 1, "content": "<s>", "special": True}, {"id": 9, "content": "<tool▁>"}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace"}]},
    "pre_tokenizer": None,
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {}}]},
    "model": {
        **{"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "merges": ["a b", ["▁", "ab"]]},
        "vocab": {text: i for i, text in enumerate(TOKENS)},
    },
}
# GGUF files of these have no window, no key for the factor of scores, or no such positions.
_WINDOW = {"mistral", "qwen2"}
_REFUSED = {
    "gemma2": r"scores are multiplied by 0\.288675, and readers assume 0\.353553",
    "gemma3": "scores are multiplied by",
    "llama4_chunks": "have experts, and readers assume every n-th layer",
    "llama_dynamic": "files have no rotary positions of the type 'dynamic'",
    "qwen2_moe": "some of its layers have no experts",
    "deepseek_v2": "GGUF files are written for falcon, gemma, ",
}
_KNOWN = (
    *(
        "falcon",
        "gemma",
        "gpt2",
        "gpt_neox",
        "granite",
        "llama",
        "llama4_text",
        "mistral",
        "mixtral",
        "olmo2",
        "olmo3",
        "phi",
        "phi3",
    ),
    *("qwen2", "qwen3", "qwen3_moe", "smollm3", "stablelm"),
)
CONVERTED = [
    name
    for name in NAMES
    if name not in {*_REFUSED, *WITH_LABELS} and reference(name)["config"]["model_type"] in _KNOWN
]


def _folder(path: Path, name: str, **changes: Any) -> Path:
    content = reference(name)
    folder = write_model(path / name, content["config"] | changes, weights(content["tensors"]))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return folder


def _logits(path: Path, name: str) -> np.ndarray:
    content = reference(name)
    inputs = arrays(content["inputs"])
    batch, length = inputs["input_ids"].shape
    graph = load(path).graph(batch=batch, sequence=length, **content["options"])
    (logits,) = rlx.evaluate(graph, {a.name: inputs[a.name] for a in graph.inputs})
    return np.asarray(logits)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_chunk_size": 4096}, "readers assume chunks of 8192 tokens"),
        ({"attention_chunk_size": None, "layer_types": None}, "readers assume chunks of 8192 tokens"),
        ({"floor_scale": 4096}, "readers assume that queries have the factors of the floor 8192"),
        ({"attn_temperature_tuning": False}, "readers assume that queries have the factors"),
        ({"use_qk_norm": False}, "readers assume norms of queries and keys, except with 128 experts"),
        ({"no_rope_layers": [1, 1, 1, 1], "layer_types": None}, "have no positions, and readers assume"),
    ],
)
def test_properties_of_llama_4_without_keys(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(rlx.UnsupportedError, match=message):
        quantize(_folder(tmp_path, "llama4", **changes), tmp_path / "out.gguf", "F32")


@pytest.mark.parametrize("name", ["llama", "gpt2", "phi3"])
def test_merged_adapters(tmp_path: Path, name: str, seed: int) -> None:
    """The file is that of the merged model, also where it joins tensors or has rows in another order."""
    content = reference(name)
    adapter = SampleAdapter.drawn(content["config"], weights(content["tensors"]), seed)
    peft = adapter.write_peft(tmp_path / "adapter", fan_in_fan_out=adapter.is_transposed)
    quantize(_folder(tmp_path, name), tmp_path / "a.gguf", "F32", lora=(peft, 0.5), remark=lambda line: None)
    merged = write_model(tmp_path / "m", content["config"], adapter.merged(weights(content["tensors"]), 0.5))
    (merged / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    quantize(merged, tmp_path / "b.gguf", "F32", remark=lambda line: None)
    got, expected = (rlx.weights.open(tmp_path / f"{n}.gguf") for n in "ab")
    assert {*got} == {*expected}
    for key, weight in expected.items():
        np.testing.assert_allclose(got[key].numpy(), weight.numpy(), atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", CONVERTED)
def test_models(tmp_path: Path, name: str) -> None:
    """Tensors, metadata and logits are those of the files that another program writes for the references."""
    folder, out = _folder(tmp_path, name), tmp_path / "out.gguf"
    remarks: list[str] = []
    quantize(folder, out, "F32", remark=remarks.append)
    content = reference(name)
    architecture = gguf_files.ARCHITECTURES[content["config"]["model_type"]]
    tensors = gguf_files.converted(content["config"], weights(content["tensors"]), architecture)
    metadata = gguf_files.metadata(content["config"], tensors, architecture)
    if name in _WINDOW:
        metadata.pop(f"{architecture}.attention.sliding_window", None)
    if architecture == "falcon":  # the converter writes a constant
        metadata["falcon.context_length"] = content["config"]["max_position_embeddings"]
    written = rlx.weights.open(out)
    assert {*written} == {*tensors}
    for key, expected in tensors.items():
        assert np.allclose(written[key].numpy(), expected, rtol=1e-6, atol=0), key
    for key, value in metadata.items():
        assert written.metadata[key] == (tuple(value) if isinstance(value, list) else pytest.approx(value)), key
    assert (written.metadata["general.name"], written.metadata["general.type"]) == (name, "model")
    assert ["no sliding windows" in line for line in remarks] == [True] * (name in _WINDOW)
    if name not in _WINDOW:
        expected, got = _logits(folder, name), _logits(out, name)
        assert np.abs(got - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("name", _REFUSED)
def test_models_that_files_cannot_represent(tmp_path: Path, name: str) -> None:
    with pytest.raises(rlx.UnsupportedError, match=_REFUSED[name]):
        quantize(_folder(tmp_path, name), tmp_path / "out.gguf", "F32")
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
def test_scores_of_gemma(tmp_path: Path, name: str) -> None:
    """With the factor that readers assume, the logits are the same."""
    lanes = reference(name)["config"]["head_dim"]
    folder = _folder(tmp_path, name, query_pre_attn_scalar=lanes)
    quantize(folder, tmp_path / "out.gguf", "F32")
    expected, got = _logits(folder, name), _logits(tmp_path / "out.gguf", name)
    assert np.abs(got - expected).max() <= 1e-6 * np.abs(expected).max()


def test_packed(tmp_path: Path) -> None:
    """Norms and routers become f32, matrices the format of the type."""
    folder = _folder(tmp_path, "mixtral")
    content = reference("mixtral")
    halves = {key: array.astype(np.float16) for key, array in weights(content["tensors"]).items()}
    write_model(folder, content["config"], halves, 2)
    result = quantize(folder, tmp_path / "out.gguf", "MXFP4_MOE", remark=lambda line: None)
    formats = {key.removeprefix("blk.0.").removesuffix(".weight"): value for key, value in result.formats.items()}
    assert {formats[n] for n in ("attn_norm", "output_norm", "ffn_gate_inp")} == {"f32"}
    assert formats["attn_q"] == formats["output"] == "q8_0"
    assert {formats[f"ffn_{n}_exps"] for n in ("gate", "up")} == {"mxfp4"}
    for out in ("config.json", "model-00001-of-00002.safetensors", "tokenizer.json"):
        with pytest.raises(rlx.Error, match="is also an input"):
            quantize(folder, folder / out, remark=lambda line: None)


def test_a_folder_and_its_file_propose_tokens_for_each_other(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    content, tokenizer = reference("llama"), samples.byte_level("gpt-2")
    tensors, rows = weights(content["tensors"]), tokenizer.get_vocab_size()
    for name, array in tensors.items():
        if len(array) == content["config"]["vocab_size"]:
            tensors[name] = np.resize(array, (rows, *array.shape[1:]))
    folder = write_model(tmp_path / "folder", content["config"] | {"vocab_size": rows}, tensors)
    tokenizer.save(str(folder / "tokenizer.json"))
    quantize(folder, tmp_path / "a.gguf", "F32")
    for model, draft in ((folder, tmp_path / "a.gguf"), (tmp_path / "a.gguf", folder)):
        rlx.llm.load(model, draft=draft).close()
    data = json.loads(tokenizer.to_str())
    vocabulary = data["model"]["vocab"]
    last, number = max(vocabulary.items(), key=lambda item: item[1])
    pairs = [pair if isinstance(pair, list) else pair.split(" ") for pair in data["model"]["merges"]]
    data["model"]["merges"] = [pair for pair in pairs if last not in (*pair, "".join(pair))]
    vocabulary["another"] = vocabulary.pop(last)
    (folder / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(rlx.Error, match=f"has other tokens than .* the first that differs has the id {number}"):
        rlx.llm.load(folder, draft=tmp_path / "a.gguf")


def test_tokens_of_merges(tmp_path: Path) -> None:
    """The score of a token is the rank of its merge. Ids without a token are unused."""
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [2, 5], "bos_token_id": 1}))
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    pairs = tokenizer_pairs(tmp_path, 12, [])
    assert pairs["tokenizer.ggml.tokens"] == [*TOKENS, "<tool >", "[PAD10]", "[PAD11]"]
    assert pairs["tokenizer.ggml.token_type"].tolist() == [2, 3, 1, 6, 1, 1, 1, 1, 1, 4, 5, 5]
    assert pairs["tokenizer.ggml.scores"][5:].tolist() == [-2, -2, 0, -1, -1000, -10000, -10000]
    ours = {key.removeprefix("tokenizer.ggml."): value for key, value in pairs.items() if np.ndim(value) == 0}
    assert ours == {
        **{"model": "llama", "pre": "default", "add_space_prefix": True, "bos_token_id": 1, "add_bos_token": True},
        **{"eos_token_id": 2, "eot_token_id": 5, "add_eos_token": False},
    }
    with pytest.raises(rlx.Error, match="the tokenizer has 10 tokens, and the embedding of the model 9 rows"):
        tokenizer_pairs(tmp_path, 9, [])


def _of_folder(folder: Path, rows: int = 1000, **files: Any) -> tuple[Tokenizer, Tokenizer]:
    """Return the tokenizer of a folder, and that of a GGUF file that is made from it."""
    for name, content in {"config": {}, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    pairs = tokenizer_pairs(folder, rows, [])
    assert len(pairs["tokenizer.ggml.tokens"]) == len(pairs["tokenizer.ggml.token_type"]) == rows
    metadata = {key: tuple(value) if isinstance(value, list) else value for key, value in pairs.items()}
    return tokenizer_from_folder(folder), tokenizer_from_gguf(metadata, "file")


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "gpt-4o"])
def test_byte_level_tokenizers(tmp_path: Path, pre: str) -> None:
    pytest.importorskip("tokenizers")
    samples.byte_level(pre).save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True, "chat_template": "{{ x }}"}
    folder, file = _of_folder(tmp_path, tokenizer_config=config, generation_config={"eos_token_id": [2, 7]})
    for text in samples.texts(3, 60, [*samples.CONTROLS, *samples.USER_DEFINED]):
        assert file.encode(text) == folder.encode(text), text
    assert (file.bos_token_id, file.eos_token_id) == (folder.bos_token_id, folder.eos_token_id)
    assert {2, 7} <= file.eos_token_ids
    assert file.chat_template == folder.chat_template == "{{ x }}"


@pytest.mark.parametrize("flag", [None, True, False])
@pytest.mark.parametrize("named", ["<s>", None])
@pytest.mark.parametrize("configured", [{}, {"bos_token_id": 0, "eos_token_id": 1}])
def test_tokens_around_a_text(tmp_path: Path, flag: bool | None, named: str | None, configured: dict[str, int]) -> None:
    """A folder and its GGUF file add the same tokens, whatever files name them. `config.json` alone adds none."""
    tokenizers = pytest.importorskip("tokenizers")
    processors = tokenizers.processors
    starts = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    both = processors.TemplateProcessing("<s> $A </s>", None, [("<s>", 0), ("</s>", 1)])
    config = {"bos_token": named, "eos_token": "</s>", "add_bos_token": flag, "add_eos_token": flag}
    config = {key: value for key, value in config.items() if value is not None}
    seen: set[tuple[int, ...]] = set()
    for pre in ("gpt-2", "llama-bpe"):
        for processor in (None, processors.ByteLevel(), starts, both):
            tokenizer = tokenizers.Tokenizer.from_str(samples.byte_level(pre).to_str())  # others use the sample
            data = json.loads(tokenizer.to_str())
            data["post_processor"] = None
            if processor is not None:
                tokenizer.post_processor = processor
                data = json.loads(tokenizer.to_str())
            folder, file = _of_folder(tmp_path, config=configured, tokenizer=data, tokenizer_config=config)
            assert file.encode("ab") == folder.encode("ab"), (pre, processor)
            seen.add(tuple(folder.encode("ab")))
    assert len(seen) >= 2 or flag is not None


@pytest.mark.parametrize("flags", [{}, {"add_bos_token": False}, {"add_bos_token": True, "add_eos_token": True}])
def test_tokens_around_a_text_of_sentencepiece(tmp_path: Path, flags: dict[str, bool]) -> None:
    pytest.importorskip("sentencepiece")
    from tests.llm.tokenizer.test_score_merges import model

    (tmp_path / "tokenizer.model").write_bytes(model("bpe", "identity", True, False))
    for configured in ({}, {"bos_token_id": 5, "eos_token_id": 6}):
        folder, file = _of_folder(tmp_path, 3000, config=configured, tokenizer_config=flags)
        assert file.encode("ab") == folder.encode("ab")
        assert (file.bos_token_id, file.encode("ab")[0] == file.bos_token_id) == (
            folder.bos_token_id,
            flags.get("add_bos_token", True),
        )


@pytest.mark.parametrize("adds_space", [True, False])
def test_sentencepiece(tmp_path: Path, adds_space: bool) -> None:
    pytest.importorskip("sentencepiece")
    from tests.llm.tokenizer.test_score_merges import model

    (tmp_path / "tokenizer.model").write_bytes(model("bpe", "identity", adds_space, False))
    size = tokenizer_from_folder(tmp_path).vocab_size
    added = {str(size): {"content": "<|im_end|>", "special": True}, str(size + 1): {"content": "<x1>"}}
    folder, file = _of_folder(tmp_path, size + 5, tokenizer_config={"added_tokens_decoder": added})
    # Readers of GGUF files put a space after these tokens as well.
    special = () if adds_space else ("<|im_end|>", "<x1>")
    for text in ("hello world", " a", "", f"ab{''.join(special)} é🙂", *samples.texts(4, 30, special)):
        text = samples.plain(text)
        assert file.encode(text) == folder.encode(text), text
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(rlx.Error, match="is not a model of SentencePiece"):
        tokenizer_pairs(tmp_path, size, [])


def _split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def _pre(*steps: dict[str, Any], takes_whole: bool = False, **data: Any) -> str:
    last = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    content = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, last]}, **data}
    return pre_tokenizer_name(content, takes_whole, "tokenizer.json", [])


def test_names_of_pre_tokenizers() -> None:
    """The regexes are those of published files."""
    deepseek = (
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    assert _pre(_split(samples.LLAMA3), takes_whole=True) == "llama-bpe"
    assert _pre(_split(samples.LLAMA3)) == "dbrx"
    assert _pre(_split(samples.QWEN2)) == "qwen2"
    assert _pre(_split(samples.GPT4O)) == "gpt-4o"
    assert _pre(_split(r"\p{N}{1,3}"), _split("[一-龥\u3040-ゟ゠-ヿ]+"), _split(deepseek)) == "deepseek-v3"
    assert _pre(_split(samples.QWEN2), normalizer={"type": "NFC"}) == "qwen2"
    remarks: list[str] = []
    byte_level = {"type": "ByteLevel", "add_prefix_space": False}
    pre_tokenizer_name({"pre_tokenizer": byte_level, "normalizer": {"type": "NFC"}}, False, "", remarks)
    assert "composes characters" in remarks[0]
    for data, message in (
        ({"pre_tokenizer": _split("[a-z]+")}, "its pre-tokenizer is not 'ByteLevel'"),
        ({"pre_tokenizer": byte_level | {"add_prefix_space": True}}, "the pre-tokenizer 'ByteLevel' has no equal"),
        ({"pre_tokenizer": byte_level, "normalizer": {"type": "Lowercase"}}, "have no normalizer 'Lowercase'"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "the pre-tokenizer 'Whitespace' has no equal in GGUF files"),
    ):
        with pytest.raises(rlx.UnsupportedError, match=message):
            pre_tokenizer_name(data, False, "tokenizer.json", [])
    with pytest.raises(
        rlx.UnsupportedError, match=r"has the regexes \('\[a-z\]\+',\); known are those of default, gpt-2"
    ):
        _pre(_split("[a-z]+"))


MODEL: dict[str, Any] = TOKENIZER["model"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": []}, "an object with an entry 'model'"),
        ({"model": {"type": "WordPiece"}}, "of the type 'WordPiece'; expected 'BPE'"),
        ({"model": MODEL | {"vocab": ["a"]}}, "must be an object with the id of each token"),
        ({"model": MODEL | {"vocab": {"a": 1 << 60}}}, "the ids of 'vocab' must be from 0 to 0"),
        ({"model": MODEL | {"vocab": {"a": -1}}}, "the ids of 'vocab' must be from 0 to 0"),
        ({"model": MODEL | {"merges": [["a"]]}}, "expected pairs of tokens in 'merges'"),
        ({"model": MODEL | {"merges": [1]}}, "expected pairs of tokens in 'merges'"),
        ({"added_tokens": 1}, "'added_tokens' must be a list of objects"),
        ({"added_tokens": [{"id": 1 << 60, "content": "a"}]}, "must have objects with 'id' and 'content'"),
    ],
)
def test_damaged_tokenizers(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER | changes))
    with pytest.raises(rlx.Error, match=message):
        tokenizer_pairs(tmp_path, 40, [])


def test_folders_without_a_part(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "llama")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(rlx.Error, match=r"has no tokenizer: expected tokenizer\.json or tokenizer\.model"):
        quantize(folder, tmp_path / "out.gguf")
    labelled = reference("llama_sequence")
    tied = labelled["config"] | {"tie_word_embeddings": True}
    write_model(folder, tied, weights(labelled["tensors"]))
    with pytest.raises(rlx.Error, match="has the head 'ForSequenceClassification', which GGUF files"):
        quantize(folder, tmp_path / "out.gguf")
    content = reference("llama")
    tensors = {key: array for key, array in weights(content["tensors"]).items() if key != "lm_head.weight"}
    write_model(folder, content["config"] | {"architectures": ["LlamaModel"]}, tensors)
    with pytest.raises(rlx.Error, match=r"without 'lm_head\.weight', whose embeddings are not tied"):
        quantize(folder, tmp_path / "out.gguf")
