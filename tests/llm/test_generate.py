"""Generation: against logits of whole texts, alone and in any company."""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from tests.llm.tiny_model import CONTEXT, write_model

_PROMPT = "the man in the inn and the"


def _greedy(model: rlx.llm.LLM, prompt: list[int], count: int) -> list[int]:
    """Return the likeliest tokens, from the logits of the whole text at each step."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(model.logits(tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def test_greedy_tokens_are_the_likeliest(model: rlx.llm.LLM) -> None:
    completion = model.generate(_PROMPT, max_tokens=12, ignore_eos=True)
    prompt = model.tokenizer.encode(_PROMPT)
    assert completion.tokens == _greedy(model, prompt, 12)
    assert completion.text == model.tokenizer.decode(completion.tokens, skip_special_tokens=True) == str(completion)
    assert (completion.finish_reason, completion.prompt_tokens) == ("length", len(prompt))


def test_logits_are_those_of_the_evaluator(model: rlx.llm.LLM, model_path: Path) -> None:
    tokens = model.tokenizer.encode(_PROMPT)
    graph = rlx.models.load(model_path).graph(sequence=len(tokens))
    (expected,) = rlx.evaluate(graph, {"input_ids": np.array([tokens], np.int32)})
    np.testing.assert_allclose(model.logits(tokens), expected[0], rtol=1e-4, atol=1e-4)
    assert (model.logits(_PROMPT) == model.logits(tokens)).all()


@pytest.mark.parametrize("scheme", ["q8_0", "q4_k"])
def test_packed_weights(tmp_path: Path, scheme: str) -> None:
    """With f32 activations, the tokens are those of the decoded weights; i8 changes logits a little."""
    path = write_model(tmp_path / "packed.gguf", scheme=scheme)
    with rlx.llm.load(path, activations="f32", cache="f32", threads=1) as exact:
        tokens = exact.tokenizer.encode(_PROMPT)
        graph = rlx.models.load(path).graph(sequence=len(tokens))
        (expected,) = rlx.evaluate(graph, {"input_ids": np.array([tokens], np.int32)})
        np.testing.assert_allclose(exact.logits(tokens), expected[0], rtol=1e-3, atol=1e-3)
        greedy = exact.generate(tokens, max_tokens=8, ignore_eos=True).tokens
        assert greedy == _greedy(exact, tokens, 8)
    with rlx.llm.load(path, threads=1) as rounded:
        difference = np.abs(rounded.logits(tokens) - expected[0]).max() / np.abs(expected).max()
        assert 0 < difference < 0.1
        assert len(rounded.generate(tokens, max_tokens=8, ignore_eos=True).tokens) == 8


_CALLS: list[dict[str, Any]] = [
    {"max_tokens": 10},
    {"max_tokens": 20, "temperature": 1.0, "seed": 1},
    {"max_tokens": 20, "temperature": 1.5, "seed": 2, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    {"max_tokens": 20, "temperature": 1.0, "seed": 3, "repetition_penalty": 1.3, "presence_penalty": 0.4},
    {"max_tokens": 15, "temperature": 2.0, "seed": 4, "logprobs": 3, "frequency_penalty": 0.5},
    {"max_tokens": 30, "temperature": 3.0, "seed": 5, "stop": ["e", "the"]},
]


@pytest.mark.parametrize("call", range(len(_CALLS)))
def test_streams_are_the_completion_in_parts(model: rlx.llm.LLM, call: int) -> None:
    options = _CALLS[call]
    completion = model.generate(_PROMPT, **options)
    chunks = list(model.stream(_PROMPT, **options))
    assert "".join(chunk.text for chunk in chunks) == completion.text
    assert [token for chunk in chunks for token in chunk.tokens] == completion.tokens
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == completion.finish_reason
    if completion.logprobs is not None:
        assert [p for chunk in chunks for p in chunk.logprobs or ()] == completion.logprobs


def test_a_seed_gives_the_same_text_in_any_company(model: rlx.llm.LLM, model_path: Path) -> None:
    """After other texts, in a list of prompts, interleaved with a stream, in threads, and in a model loaded anew."""
    options = {"max_tokens": 12, "temperature": 1.0, "ignore_eos": True}
    prompts = [_PROMPT, "and the", "in", _PROMPT + " end"]
    alone = []
    for number, prompt in enumerate(prompts):
        with rlx.llm.load(model_path, cache="f32", threads=1) as fresh:
            alone.append(fresh.generate(prompt, seed=number, **options).text)
    assert [model.generate(p, seed=i, **options).text for i, p in enumerate(prompts)] == alone
    assert [c.text for c in model.generate(prompts[:1] * 2, seed=0, **options)] == [alone[0]] * 2
    streams = [model.stream(p, seed=i, **options) for i, p in enumerate(prompts)]
    texts = ["" for _ in prompts]
    running = dict(enumerate(streams))
    while running:
        for number in list(running):
            chunk = next(running[number], None)
            if chunk is None:
                del running[number]
            else:
                texts[number] += chunk.text
    assert texts == alone
    found: dict[int, str] = {}

    def run(number: int) -> None:
        found[number] = model.generate(prompts[number], seed=number, **options).text

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(len(prompts))] == alone


def test_several_samples_have_following_seeds(model: rlx.llm.LLM) -> None:
    options = {"max_tokens": 8, "temperature": 1.0, "ignore_eos": True}
    several = model.generate(_PROMPT, n=3, seed=7, **options)
    assert [c.text for c in several] == [model.generate(_PROMPT, seed=7 + i, **options).text for i in range(3)]
    assert len({c.text for c in several}) > 1


def test_prompts_are_computed_once(model: rlx.llm.LLM) -> None:
    """The cached part does not change the numbers: logits after a prompt are the same bits with and without it."""
    tokens = model.tokenizer.encode(_PROMPT * 3)
    first = model.generate(tokens, max_tokens=1, logprobs=5)
    again = model.generate(tokens, max_tokens=1, logprobs=5)
    assert again.cached_tokens == len(tokens) - 1
    assert (again.tokens, again.logprobs) == (first.tokens, first.logprobs)
    for length in (3, 10, len(tokens) - 2):
        model.generate([5, 6], max_tokens=1)
        plain = model.generate(tokens, max_tokens=1, logprobs=5)
        model.generate([5, 6], max_tokens=1)
        model.generate(tokens[:length], max_tokens=3, ignore_eos=True)
        shared = model.generate(tokens, max_tokens=1, logprobs=5)
        assert (plain.cached_tokens, shared.cached_tokens) == (0, length)
        assert shared.logprobs == plain.logprobs


def test_logprobs_are_before_the_sampling_parameters(model: rlx.llm.LLM) -> None:
    tokens = model.tokenizer.encode(_PROMPT)
    bias = {40: 5.0, 41: -np.inf}
    completion = model.generate(tokens, max_tokens=3, temperature=2.0, top_k=5, seed=1, logprobs=2, logit_bias=bias)
    assert completion.logprobs is not None
    for number, logprobs in enumerate(completion.logprobs):
        logits = model.logits(tokens + completion.tokens[:number])[-1].astype(np.float64)
        logits[40] += 5.0
        logits[41] = -np.inf
        expected = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        best = np.argsort(-expected, kind="stable")[:2].tolist()
        taken = completion.tokens[number]
        assert list(logprobs) == (best if taken in best else [*best, taken])
        np.testing.assert_allclose(list(logprobs.values()), expected[list(logprobs)], atol=1e-4)


def test_ends(model: rlx.llm.LLM) -> None:
    eos = model.tokenizer.eos_token_id
    assert eos is not None
    ended = model.generate(_PROMPT, logit_bias={eos: 1e4})
    assert (ended.text, ended.tokens, ended.finish_reason) == ("", [], "stop")
    ignored = model.generate(_PROMPT, logit_bias={eos: 1e4}, ignore_eos=True, max_tokens=3)
    assert (ignored.text, ignored.tokens, ignored.finish_reason) == ("", [eos] * 3, "length")
    none = model.generate(_PROMPT, max_tokens=0)
    assert (none.text, none.tokens, none.finish_reason) == ("", [], "length")


def test_the_context_ends_a_text(model: rlx.llm.LLM) -> None:
    assert model.context == CONTEXT
    prompt = [10] * (CONTEXT - 3)
    completion = model.generate(prompt, ignore_eos=True)
    assert (completion.tokens, completion.finish_reason) == (_greedy(model, prompt, 3), "length")
    whole = model.generate([10] * CONTEXT, ignore_eos=True)
    assert (whole.tokens, whole.finish_reason) == ([], "length")
    with pytest.raises(rlx.Error, match=f"{CONTEXT + 1} tokens, and the context {CONTEXT}"):
        model.generate([10] * (CONTEXT + 1))


def test_stop_texts(model: rlx.llm.LLM) -> None:
    """A stop text may begin in one token and end in another, and is held back in streams."""
    bias = {token: 1e3 - i for i, token in enumerate(model.tokenizer.encode("xyz", add_special_tokens=False))}
    plain = model.generate(_PROMPT, max_tokens=6, logit_bias=bias, ignore_eos=True)
    assert plain.text == "xxxxxx"
    for stop, expected in (("xx", ""), ("xxxxxxx", "xxxxxx"), (["zz", "xxx"], "")):
        stopped = model.generate(_PROMPT, max_tokens=6, logit_bias=bias, stop=stop)
        assert (stopped.text, stopped.finish_reason) == (expected, "length" if expected else "stop")
        chunks = list(model.stream(_PROMPT, max_tokens=6, logit_bias=bias, stop=stop))
        assert "".join(c.text for c in chunks) == expected and not any("xx" in c.text for c in chunks[:-1])


def test_chat(model: rlx.llm.LLM) -> None:
    messages = [{"role": "user", "content": "the end"}]
    prompt = "<|user|>the end<|end|><|assistant|>"
    assert model.tokenizer.apply_chat_template(messages) == prompt
    answer = model.chat(messages, max_tokens=5)
    same = model.generate(model.tokenizer.encode(prompt, add_special_tokens=False), max_tokens=5)
    assert (answer.text, answer.prompt_tokens) == (same.text, same.prompt_tokens)
    assert "".join(c.text for c in model.chat_stream(messages, max_tokens=5)) == answer.text


def test_embeddings_and_perplexity(model: rlx.llm.LLM) -> None:
    vectors = model.embed(["the end", "in the inn"])
    assert vectors.shape == (2, 64) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert np.abs(model.embed(["the end"], pooling="last") - vectors[:1]).max() > 1e-3
    text, context = _PROMPT * 8, 16
    tokens = model.tokenizer.encode(text)
    losses = []
    for begin in range(0, len(tokens) // context * context, context):
        window = [model.tokenizer.bos_token_id, *tokens[begin + 1 : begin + context]]
        logits = model.logits(window).astype(np.float64)  # type: ignore[arg-type]
        for position in range(context // 2, context - 1):
            row = logits[position]
            total = np.log(np.exp(row - row.max()).sum()) + row.max()
            losses.append(total - row[tokens[begin + position + 1]])
    assert model.perplexity(text, context=context) == pytest.approx(np.exp(np.mean(losses)), rel=1e-6)
    with pytest.raises(rlx.Error, match="at least 32"):
        model.perplexity("the", context=16)


_REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "max_tokens": (lambda m: m.generate("a", max_tokens=-1), "max_tokens must be an integer of at least 0"),
    "temperature": (lambda m: m.generate("a", temperature=-0.1), "temperature must be a number of at least 0"),
    "nan": (lambda m: m.generate("a", temperature=float("nan")), "temperature"),
    "top_p": (lambda m: m.generate("a", top_p=1.1), "top_p must be a number from 0 to 1"),
    "top_k": (lambda m: m.generate("a", top_k=1.5), "top_k must be an integer"),
    "stop": (lambda m: m.generate("a", stop=[""]), "stop must be"),
    "bias": (lambda m: m.generate("a", logit_bias={99999: 1.0}), "token 99999"),
    "bias key": (lambda m: m.generate("a", logit_bias={"x": 1.0}), "a token id in logit_bias"),
    "penalty": (lambda m: m.generate("a", repetition_penalty=0), "more than 0"),
    "n": (lambda m: m.generate("a", n=0), "n must be"),
    "stream of several": (lambda m: m.stream("a", n=2), "a stream has one result"),
    "ids": (lambda m: m.generate([5, 10**6]), "token ids from 0 to"),
    "negative id": (lambda m: m.generate([-1]), "token ids from 0 to"),
    "number": (lambda m: m.generate(5), "a prompt must be"),
    "empty": (lambda m: m.generate([]), "the prompt is empty"),
    "all excluded": (
        lambda m: m.generate("a", logit_bias=dict.fromkeys(range(m.config.vocab_size), -np.inf)),
        "excludes all tokens",
    ),
    "bytes": (lambda m: m.generate(b"abc"), "a prompt must be"),
    "no texts": (lambda m: m.embed(None), "expected a text or a list of texts"),
    "bias array": (lambda m: m.generate("a", logit_bias={5: np.array([1, 2])}), "logit_bias of 5"),
    "large count": (lambda m: m.generate("a", max_tokens=10**30), "from 0 to"),
    "last seed": (lambda m: m.generate("a", seed=2**64 - 1, n=2), "less than 2"),
    "template options": (lambda m: m.chat([], template_options={"tokenize": True}), "other than chat_template"),
    "template names": (lambda m: m.chat([], template_options={5: 5}), "template_options must be"),
    "pickle": (lambda m: pickle.dumps(m), "cannot be pickled"),
    "pooling": (lambda m: m.embed(["a"], pooling="max"), "pooling must be"),
    "unknown option": (lambda m: m.generate("a", temprature=1), "temperature"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_refused(model: rlx.llm.LLM, case: str) -> None:
    call, message = _REFUSED[case]
    with pytest.raises((rlx.Error, TypeError), match=message):
        result = call(model)
        if not isinstance(result, rlx.llm.Completion):
            list(result)


def test_ids_of_a_padded_embedding_have_no_text(tmp_path: Path) -> None:
    """A model may have more rows than its tokenizer has tokens. Their ids are tokens like others, without text."""
    path = write_model(tmp_path / "padded.gguf", rows=300)
    with rlx.llm.load(path, threads=1) as model:
        completion = model.generate("the", max_tokens=3, logit_bias={290: 1e4})
        assert (completion.text, completion.tokens) == ("", [290] * 3)
        assert "".join(c.text for c in model.stream([5, 290], max_tokens=3, logit_bias={290: 1e4})) == ""


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1e-308},
        {"temperature": 1e-320},
        {"repetition_penalty": 1e308},
        {"presence_penalty": -1e308, "frequency_penalty": 1e308},
    ],
)
def test_extreme_parameters(model: rlx.llm.LLM, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        completion = model.generate(_PROMPT, max_tokens=3, seed=1, ignore_eos=True, **options)
    if "temperature" in options:
        assert completion.tokens == model.generate(_PROMPT, max_tokens=3, ignore_eos=True).tokens


def test_an_interrupt_between_two_texts_leaves_no_wrong_cache(
    model: rlx.llm.LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache is written state by state when a text takes its place again: an interrupt in between is harmless."""
    options = {"max_tokens": 6, "ignore_eos": True}
    expected = model.generate("and the inn", **options)
    first, second = model.stream(_PROMPT, **options), model.stream("and the inn", **options)
    next(first)
    next(second)
    program, calls = type(model.engine._generation), []  # pyright: ignore[reportPrivateUsage]
    run = program.run

    def interrupted(self: Any, inputs: Any) -> Any:
        if "target" in inputs:
            calls.append(inputs)
            raise KeyboardInterrupt
        return run(self, inputs)

    with monkeypatch.context() as patch:
        patch.setattr(program, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(first)
    assert model.generate("and the inn", **options).tokens == expected.tokens
    assert [t for chunk in second for t in chunk.tokens] == expected.tokens[1:]


def test_a_factor_without_a_type_is_linear(tmp_path: Path) -> None:
    factor: dict[str, Any] = {"llama.rope.scaling.factor": 4.0}
    linear: dict[str, Any] = factor | {"llama.rope.scaling.type": "linear"}
    implied = rlx.models.load(write_model(tmp_path / "implied.gguf", **factor))
    written = rlx.models.load(write_model(tmp_path / "written.gguf", **linear))
    plain = rlx.models.load(write_model(tmp_path / "plain.gguf"))
    assert implied.config == written.config != plain.config


def test_loading(tmp_path: Path, model_path: Path) -> None:
    with rlx.llm.load(model_path, context=50) as model:
        assert (model.context, model.architecture) == (50, "llama")
        assert model.metadata["llama.block_count"] == 2 and "token_embd.weight" in model.weights
    with pytest.raises(rlx.Error, match="is closed"):
        model.generate("a")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"context": CONTEXT + 1}, "context must be"),
        ({"cache": "q5"}, "cache must be one of"),
        ({"activations": "i4"}, "activations must be one of"),
        ({"lora": "no such adapter"}, "no such"),
        ({"draft": "x"}, "no such file"),
    ]
    for options, message in refused:
        with pytest.raises(rlx.Error, match=message):
            rlx.llm.load(model_path, **options)
    with pytest.raises(rlx.Error, match="no such"):
        rlx.llm.load(tmp_path / "none.gguf")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(rlx.Error, match="no config"):
        rlx.llm.load(folder)
    write_model(folder / "m.gguf")
    with pytest.raises(rlx.Error, match=r"m\.gguf"):
        rlx.llm.load(folder)
    (tmp_path / "empty.gguf").write_bytes(b"")
    with pytest.raises(rlx.Error, match="not a GGUF file"):
        rlx.llm.load(tmp_path / "empty.gguf")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(rlx.Error, match="no file"):
        rlx.llm.load(tmp_path / "pipe")
    size: Any = np.int64(40)
    assert rlx.llm.load(model_path, context=size).context == 40
    tokens: dict[str, Any] = {"tokenizer.ggml.tokens": ["a"] * 3}
    few = write_model(tmp_path / "few.gguf", **tokens)
    with pytest.raises(rlx.Error):
        rlx.llm.load(few)
