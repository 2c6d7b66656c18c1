"""rlx generate, chat, perplexity and gguf, on a small random model."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli.main import main
from tests.llm.tiny_model import write_model
from tests.models.adapter_samples import write_adapter_gguf

_PROMPT = "the man in the inn"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("cli") / "tiny.gguf"))


def _expected(path: str, **options: Any) -> rlx.llm.Completion:
    with rlx.llm.load(path) as model:
        return model.generate(_PROMPT, **options)


def test_generate(path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _expected(path, max_tokens=6, temperature=0.9, seed=3, ignore_eos=True)
    options = ["-n", "6", "--temp", "0.9", "-s", "3", "--ignore-eos"]
    assert main(["generate", path, "-p", _PROMPT, *options, "--stats"]) == 0
    output = capsys.readouterr()
    assert output.out == expected.text + "\n"
    assert "prompt: 11 tokens" in output.err and "output: 6 tokens" in output.err
    assert main(["generate", path, "-p", "a\udcff"]) == 1
    assert "--prompt is not UTF-8 text" in capsys.readouterr().err
    file = Path(path).parent / "prompt.txt"
    file.write_text(_PROMPT)
    assert main(["generate", path, "-f", str(file), "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "text": expected.text,
        "tokens": expected.tokens,
        "finish_reason": "length",
    }
    monkeypatch.setattr(sys, "stdin", io.StringIO(_PROMPT))
    assert main(["generate", path, "-", *options]) == 0
    assert capsys.readouterr().out == expected.text + "\n"


def test_penalties_and_log_probabilities(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"max_tokens": 8, "ignore_eos": True, "logprobs": 2}
    expected = _expected(path, presence_penalty=-30, frequency_penalty=-0.25, **options)
    plain = _expected(path, **options)
    words = ["--presence-penalty", "-30", "--frequency-penalty", "-0.25", "-n", "8", "--ignore-eos"]
    assert main(["generate", path, "-p", _PROMPT, "--json", "--logprobs", "2", *words]) == 0
    result = json.loads(capsys.readouterr().out)
    assert expected.tokens != plain.tokens and expected.logprobs is not None
    assert result["text"] == expected.text and result["tokens"] == expected.tokens
    assert result["logprobs"] == [
        {str(token): pytest.approx(value) for token, value in entry.items()} for entry in expected.logprobs
    ]
    assert main(["generate", path, "-p", "a", "--logprobs", "2"]) == 1
    assert "--logprobs goes with --json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-p", "a", "-n", "-1"], "max_tokens must be an integer of at least 0"),
        (["-p", "a", "--temp", "-1"], "temperature"),
        (["-p", "a", "--logit-bias", "x"], "--logit-bias must be ID=X"),
        (["-p", "a", "-c", "100000"], "context must be an integer from 1 to 128"),
        (["-p", "a", "-"], "given twice"),
        (["-p", "a", "--schema", '{"typ": 1}'], "'typ' cannot be enforced"),
        (["-p", "a", "--schema", "no such file"], "cannot read no such file"),
        (["-p", "a", "--grammar", "no such file"], "cannot read no such file"),
        (["-p", "a", "--lora", "no such file"], "no such file"),
        (["-p", "a", "--lora", "adapter=x"], "--lora must be PATH or PATH=SCALE"),
        (["-p", "a", "--cache", "q8_0"], "blocks of 32 elements, into which the heads of this llama, of 16 elements"),
        (["-f", "no such file"], "cannot read no such file"),
    ],
)
def test_bad_options(path: str, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["generate", path, *words]) == 1
    output = capsys.readouterr()
    assert message in output.err and not output.out


def test_schema_and_grammar(tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.gbnf"
    schema.write_text('{"enum": ["x", "y"]}')
    grammar.write_text('root ::= "(" root ")" | "é"')
    for given in (str(schema), ' {"enum": ["x", "y"]}'):
        assert main(["generate", path, "-p", "a", "--schema", given]) == 0
        assert json.loads(capsys.readouterr().out) in ("x", "y")
    assert main(["generate", path, "-p", "a", "--grammar", str(grammar), "-n", "9", "--temp", "1", "-s", "1"]) == 0
    assert capsys.readouterr().out.strip("()\n") in ("é", "")


def test_adapters(tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    factors = {
        "output.weight.lora_a": np.ones((1, 64), np.float32),
        "output.weight.lora_b": np.ones((269, 1), np.float32),
    }
    factors["output.weight.lora_b"][40] = 1e4
    adapter = write_adapter_gguf(tmp_path / "a=b.gguf", "llama", 1, factors)
    texts = []
    for given in (f"{adapter}", f"{adapter}=1", f"{adapter}=-1", f"{adapter}=0"):
        assert main(["generate", path, "-p", _PROMPT, "-n", "3", "--json", "--ignore-eos", "--lora", given]) == 0
        texts.append(json.loads(capsys.readouterr().out)["tokens"])
    assert texts[0] == texts[1] != texts[2]
    assert texts[3] == _expected(path, max_tokens=3, ignore_eos=True).tokens


def test_merged_adapters(tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows, width = rlx.weights.open(path)["output.weight"].shape
    shapes = {"a": (1, width), "b": (rows, 1)}
    tensors = {f"output.weight.lora_{part}": np.ones(shape, np.float32) for part, shape in shapes.items()}
    adapter = write_adapter_gguf(tmp_path / "a=b.gguf", "llama", 1, tensors)
    out = tmp_path / "out.gguf"
    assert main(["quantize", path, "-o", str(out), "--type", "F32", "--lora", f"{adapter}=2"]) == 0
    before, after = (rlx.weights.open(file)["output.weight"].numpy() for file in (path, out))
    np.testing.assert_allclose(after, before + 2, atol=1e-6)
    tensors["output.weight.lora_a"][0, 0] = tensors["output.weight.lora_b"][3, 0] = 1e30
    adapter, content = write_adapter_gguf(tmp_path / "large.gguf", "llama", 1, tensors), out.read_bytes()
    assert main(["quantize", path, "-o", str(out), "--type", "F32", "--lora", str(adapter)]) == 1
    assert "tensor 'output.weight'" in (message := capsys.readouterr().err) and "not finite" in message
    assert out.read_bytes() == content
    for empty in ("", " "):
        assert main(["quantize", path, "-o", str(out), "--type", empty]) == 1
        assert f"no type of files is called '{empty}'" in capsys.readouterr().err
    assert main(["quantize", path, "-o", str(out), "--lora", "a=x"]) == 1
    assert "--lora must be PATH or PATH=SCALE" in capsys.readouterr().err


def test_chat(path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with rlx.llm.load(path) as model:
        system = {"role": "system", "content": "be"}
        first = model.chat([system, {"role": "user", "content": "the end"}], max_tokens=5)
        said = [{"role": "assistant", "content": first.text}, {"role": "user", "content": "and"}]
        second = model.chat([system, {"role": "user", "content": "the end"}, *said], max_tokens=5)
    monkeypatch.setattr(sys, "stdin", io.StringIO("the end\nand\n/clear\n\nthe end\n/exit\nnever\n"))
    assert main(["chat", path, "--system", "be", "-n", "5"]) == 0
    assert capsys.readouterr().out == f"{first.text}\n{second.text}\n{first.text}\n"


def test_proposed_tokens(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", path, "-p", _PROMPT, "-n", "12", "--ignore-eos"]
    texts: list[str] = []
    for more in ([], ["--lookup"], ["--draft", path]):
        assert main([*words, *more]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[1:] == texts[:1] * 2
    assert main([*words, "--draft", path, "--stats"]) == 0
    # The draft is the model itself: of 12 tokens, the first is the model's, and 3 of each 4 are proposed.
    assert re.search(r"draft: \d+ tokens proposed, \d+ accepted \(100%\)\n", capsys.readouterr().err)
    assert main([*words, "--stats"]) == 0
    assert "draft:" not in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*words, "--lookup", "--draft", path])
    assert "not allowed with" in capsys.readouterr().err
    assert main([*words, "--draft", "mtp"]) == 1
    assert "has no head that predicts further tokens" in capsys.readouterr().err


def test_a_message_that_is_too_long_does_not_end_a_chat(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with rlx.llm.load(path) as model:
        first = model.chat([{"role": "user", "content": "the end"}], max_tokens=5)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{'the ' * 500}\nthe end\n"))
    assert main(["chat", path, "-n", "5"]) == 1
    output = capsys.readouterr()
    assert output.out == f"{first.text}\n" and output.err.count("rlx: error: the prompt has") == 1


def test_perplexity(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    file, text = Path(path).parent / "text.txt", _PROMPT * 10
    file.write_text(text)
    assert main(["perplexity", path, str(file), "-c", "16"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    with rlx.llm.load(path) as model:
        losses = model.negative_log_likelihoods(text, context=16)
    value = np.exp(losses.mean())
    assert last == f"perplexity: {value:.4f} ± {value * losses.std(ddof=1) / len(losses) ** 0.5:.4f}"
    file.write_bytes(b"\xff")
    assert main(["perplexity", path, str(file)]) == 1
    assert "is not UTF-8 text" in capsys.readouterr().err
    file.write_text("")
    assert main(["perplexity", path, str(file)]) == 1
    assert "the text is empty" in capsys.readouterr().err


def test_default_window_of_perplexities(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the model's context, if that is less than 512."""
    file, texts = Path(path).parent / "text.txt", list[str]()
    file.write_text(_PROMPT * 60)
    for words in ([], ["-c", "128"]):
        assert main(["perplexity", path, str(file), *words]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and texts[0].startswith("perplexity: ")
    file.write_text(_PROMPT)
    assert main(["perplexity", path, str(file)]) == 1
    assert "at least 256 are needed for a context of 128" in capsys.readouterr().err


def test_precision(path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands load the model with the cache and the activations of the options."""
    loaded: list[dict[str, Any]] = []

    def refused(path: str, **options: Any) -> None:
        loaded.append(options)
        raise rlx.Error("refused")

    monkeypatch.setattr("rlx.llm.load", refused)
    file = Path(path).parent / "text.txt"
    file.write_text(_PROMPT)
    for words in (["generate", path, "-p", "a"], ["chat", path], ["perplexity", path, str(file)], ["serve", path]):
        serving = ["--port", "0"] if words[0] == "serve" else []
        assert main([*words, *serving]) == 1
        assert main([*words, *serving, "--cache", "q8_0", "--activations", "i16"]) == 1
        pairs = [(options["cache"], options["activations"]) for options in loaded[-2:]]
        assert pairs == [("f16", "i8"), ("q8_0", "i16")], words
        with pytest.raises(SystemExit):
            main([*words, "--cache", "q5"])
        assert "invalid choice: 'q5'" in capsys.readouterr().err


def test_gguf(tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gguf", path]) == 0
    text = capsys.readouterr().out
    assert main(["inspect", path]) == 0
    assert capsys.readouterr().out == text
    assert "general.architecture" in text and "blk.1.ffn_down.weight" in text and "64×128" in text
    assert main(["gguf", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["metadata"]["llama.block_count"] == 2 and len(data["tensors"]) == 21
    assert main(["gguf", path, "--tensor", "output_norm.weight"]) == 0
    assert "from 1 to 1, mean 1" in capsys.readouterr().out
    tensor = "blk.0.ffn_up.weight"
    values = rlx.weights.open(path)[tensor].numpy().astype(np.float64)
    assert main(["gguf", path, "--json", "--tensor", tensor]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["name"], summary["type"], summary["shape"]) == (tensor, "float32", list(values.shape))
    statistics = [summary[key] for key in ("least", "largest", "mean", "deviation")]
    np.testing.assert_allclose(statistics, [values.min(), values.max(), values.mean(), values.std()], atol=1e-12)
    assert summary["first"] == values.reshape(-1)[:6].tolist() and summary["not_finite"] == 0
    infinite = tmp_path / "infinite.gguf"
    rlx.weights.save_gguf(infinite, {"a": np.array([np.nan, np.inf], np.float32), "b": np.zeros(0, np.float32)}, {})
    assert main(["gguf", str(infinite), "--json", "--tensor", "a"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["not_finite"] == 2 and summary["first"] == [None, None] and "mean" not in summary
    assert main(["gguf", path, "--tensor", "none"]) == 1
    assert "no tensor 'none'" in capsys.readouterr().err
    name: dict[str, Any] = {"general.name": "\x1b[2J\n" + "x" * 1000}
    hostile = write_model(tmp_path / "hostile.gguf", **name)
    assert main(["gguf", str(hostile)]) == 0
    output = capsys.readouterr().out
    assert "\x1b" not in output and "\\x1b[2J\\n" in output and "x" * 200 not in output
    odd: dict[str, Any] = {"general.name": "\x7f\x9b31m", "a.nan": float("nan"), "a.infs": [float("inf"), 0.5]}
    assert main(["gguf", str(write_model(tmp_path / "odd.gguf", **odd)), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["metadata"]
    assert [found[key] for key in odd] == ["\x7f\x9b31m", None, [None, 0.5]]
    other = tmp_path / "other.npy"
    np.save(other, np.zeros(3))
    assert main(["gguf", str(other)]) == 1
    assert "is not a GGUF file" in capsys.readouterr().err


def test_arrays_for_numbers_and_texts(tmp_path: Path, path: str) -> None:
    """Each value of the metadata may be of another type in a damaged file, which is loaded or refused."""
    keys = [*rlx.weights.open(path).metadata, "general.type", "general.name", "llama.rope.scaling.type"]
    keys += ["llama.rope.scaling.factor", "llama.expert_count", "llama.vocab_size", "tokenizer.chat_template"]
    values: tuple[Any, ...] = ([], [1, 2], ["a"], np.zeros(0, np.int32), True)
    for key in keys:
        for value in values:
            changed: dict[str, Any] = {key: value}
            file = write_model(tmp_path / "changed.gguf", **changed)
            with contextlib.suppress(rlx.Error), rlx.llm.load(file) as model:
                assert model.context > 0
