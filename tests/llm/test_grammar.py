"""Texts that follow a grammar: against `re` and recognisers written here, for every kind of tokenizer and in generations."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

import rlx
from rlx.llm.grammar import GrammarConstraint, constraint_source
from rlx.llm.grammar import source as grammar_source
from rlx.llm.options import GenerationOptions
from rlx.llm.sampler import Sampler
from rlx.llm.tokenizer import Tokenizer, tokenizer_from_gguf
from tests.llm.tiny_model import write_model
from tests.llm.tokenizer import samples

_PROMPT = "the man in the inn and the"


def _bytes() -> Tokenizer:
    """A tokenizer of single bytes, some of them twice, and a token without text."""
    metadata = samples.score_metadata(["a", "b", "ab", "bab", ""], [0.0] * 5)
    return tokenizer_from_gguf(metadata, "bytes")


def _accepted(constraint: GrammarConstraint, alphabet: str, longest: int, text: str = "") -> Iterator[str]:
    """Yield the texts of an alphabet that a grammar accepts, one byte at a time."""
    if constraint.is_complete:
        yield text
        return
    allowed = constraint.allowed()
    if allowed[2]:  # </s>
        yield text
    if len(text) < longest:
        for character in alphabet:
            if allowed[3 + ord(character)]:
                following = copy.copy(constraint)
                following._matcher = constraint._matcher.deep_copy()
                following.accept(3 + ord(character))
                yield from _accepted(following, alphabet, longest, text + character)


def _texts(alphabet: str, longest: int) -> list[str]:
    texts, last = [""], [""]
    for _ in range(longest):
        last = [text + character for text in last for character in alphabet]
        texts += last
    return texts


def _is_balanced(text: str) -> bool:
    while "()" in text:
        text = text.replace("()", "")
    return not text


def _is_palindrome(text: str) -> bool:
    return text == text[::-1]


_LANGUAGES: dict[str, tuple[str, str, str | Callable[[str], bool]]] = {
    "choice": ('root ::= "a" "bd" | "ab" "c" | ""', "abcd", "abd|abc|"),
    "overlap": ('root ::= [a-c]+ "b"', "abcd", "[a-c]+b"),
    "rules": ('root ::= x y*\nx ::= [^a]\ny ::= x | "a" x "a"', "abc", "[bc]([bc]|a[bc]a)*"),
    "counts": ('root ::= "a"{2} ("b"{0,2} "c"){1,2} [b-c]{2,}', "abc", "a{2}(b{0,2}c){1,2}[bc]{2,}"),
    "any": ('root ::= . ([\\x61-b] | "\\u0063d")? # a comment', "abcd", "(?s:.)([a-b]|cd)?"),
    "lark": ('start: "a" x\nx: /b+/ "c" | ', "abc", "a(b+c)?"),
    "nothing": ('root ::= ""', "ab", ""),
    "balanced": ('root ::= ("(" root ")")*', "()", _is_balanced),
    "powers": (
        'root ::= s\ns ::= "a" s "b" | "ab"',
        "ab",
        lambda text: bool(text) and text == "a" * (len(text) // 2) + "b" * (len(text) // 2),
    ),
    "palindromes": ('root ::= "a" root "a" | "b" root "b" | [ab]?', "ab", _is_palindrome),
    "greedy": ('root ::= [ab]+ "(" root ")" | "ab" root | "."', "ab(.)", lambda text: _is_greedy(text)),
}


def _is_greedy(text: str) -> bool:
    if text == ".":
        return True
    if text.startswith("ab") and _is_greedy(text[2:]):
        return True
    match = re.fullmatch(r"[ab]+\((.*)\)", text)
    return match is not None and _is_greedy(match[1])


@pytest.mark.parametrize("name", _LANGUAGES)
def test_exactly_the_texts_of_the_grammar(name: str) -> None:
    grammar, alphabet, language = _LANGUAGES[name]
    longest = 6 if len(alphabet) > 2 else 8
    source = constraint_source(None, grammar)
    assert source is not None
    constraint = GrammarConstraint(source, _bytes(), 264)
    is_member = (lambda text: re.fullmatch(language, text) is not None) if isinstance(language, str) else language
    expected = {text for text in _texts(alphabet, longest) if is_member(text)}
    found = list(_accepted(constraint, alphabet, longest))
    assert set(found) == expected and len(found) == len(expected)


def _walk(source: str, tokenizer: Tokenizer, seed: int, longest: int = 300) -> str | None:
    """Return a text of random allowed tokens, or None if it does not end."""
    rng, decoder = np.random.default_rng(seed), tokenizer.stream_decoder(keeps_space=True)
    constraint, text = GrammarConstraint(source, tokenizer, tokenizer.vocab_size + 7), ""
    ends = sorted(tokenizer.eos_token_ids)
    for _ in range(longest):
        if constraint.is_complete:
            return text + decoder.flush()
        allowed = constraint.allowed()
        assert not allowed[tokenizer.vocab_size :].any()
        if allowed[ends].any() and rng.random() < 0.3:
            return text + decoder.flush()
        allowed[ends] = False
        if not allowed.any():
            return text + decoder.flush()
        token = int(rng.choice(np.flatnonzero(allowed)))
        assert not tokenizer.is_control(token)
        constraint.accept(token)
        text += decoder.push(token)
    return None


_TOKENIZERS: dict[str, Callable[[], dict[str, Any]]] = {
    "byte level": lambda: samples.byte_level_metadata("llama-bpe"),
    "scores": lambda: samples.score_metadata(["▁the", "the", "▁", '{"', "é", "12"], [0.0] * 6),
    "unigram": samples.unigram_metadata,
    "word piece": lambda: samples.word_piece_metadata() | {"tokenizer.ggml.eos_token_id": 3},
}


@pytest.mark.parametrize("name", _TOKENIZERS)
def test_every_kind_of_tokenizer(name: str, seed: int) -> None:
    tokenizer = tokenizer_from_gguf(_TOKENIZERS[name](), name)
    patterns = {r"( [a-zé]{1,9}){1,3} \.": '( " " [a-zé]{1,9}){1,3} " ."', r"[^\n]{0,9}x": '[^\\n]{0,9} "x"'}
    if name != "word piece":  # control tokens are not allowed, and their text is
        patterns |= {r"<s>|\[CLS\]|</s>": '"<s>" | "[CLS]" | "</s>"'}
    for pattern, rule in patterns.items():
        source = constraint_source(None, f"root ::= {rule}")
        assert source is not None
        texts: list[str] = []
        for i in range(15):
            try:
                texts += filter(None, [_walk(source, tokenizer, seed + i)])
            except rlx.Error as problem:  # WordPiece has no single characters for all texts
                assert name == "word piece" and "no token that continues" in str(problem)
        assert texts
        wrong = [text for text in texts if re.fullmatch(pattern, text) is None]
        assert not wrong


def test_control_tokens_are_not_text(seed: int) -> None:
    """A control token whose text is a part of the grammar is not allowed, not even by its id."""
    tokenizer = tokenizer_from_gguf(samples.byte_level_metadata("gpt-2"), "t")
    start = tokenizer.id("<s>")
    for grammar in ('root ::= "<s>"', f'start: <[{start}]> | "a"', 'start: <[*]> "a"'):
        source = constraint_source(None, grammar)
        assert source is not None
        allowed = GrammarConstraint(source, tokenizer, tokenizer.vocab_size).allowed()
        assert allowed.any() and not allowed[start] and not allowed[sorted(tokenizer.eos_token_ids)].any()


def test_a_tokenizer_without_an_end() -> None:
    metadata = samples.byte_level_metadata("gpt-2")
    tokenizer = tokenizer_from_gguf(metadata, "t")
    endless = Tokenizer(replace(tokenizer.vocabulary, ends=frozenset(), eos=None), tokenizer._encoder, origin="t")
    source = constraint_source(None, 'root ::= "ab"')
    assert source is not None and not endless.eos_token_ids
    assert _walk(source, endless, 0) == "ab"


def test_a_vocabulary_that_cannot_continue(seed: int) -> None:
    metadata = samples.byte_level_metadata("gpt-2") | {"tokenizer.ggml.merges": ()}
    metadata["tokenizer.ggml.tokens"] = tuple(
        t if t in samples.CONTROLS else f"Q{t}" for t in metadata["tokenizer.ggml.tokens"]
    )
    tokenizer = tokenizer_from_gguf(metadata, "t")
    source = constraint_source(None, 'root ::= "ab"')
    assert source is not None
    with pytest.raises(rlx.Error, match="no token that continues"):
        _walk(source, tokenizer, seed)


def test_frequencies(seed: int) -> None:
    """The distribution is that of the allowed tokens, renormalised; a bias cannot bring another one back."""
    rng, count, number = np.random.default_rng(seed), 24, 4000
    logits = rng.normal(size=count).astype(np.float32) * 1.5
    allowed = rng.random(count) < 0.5
    allowed[:2] = [True, False]
    options = GenerationOptions(temperature=1.5, logit_bias={0: -1.0, 1: 1e4}, logprobs=2)
    scores = logits.astype(np.float64)
    scores[:2] += [-1.0, 1e4]
    shares = np.where(allowed, np.exp(np.where(allowed, scores, 0) / 1.5), 0)
    sampler, counts = Sampler(options, [], seed, count), np.zeros(count)
    for _ in range(number):
        token, logprobs = sampler.choose(logits, allowed)
        counts[token] += 1
        assert logprobs is not None and next(iter(logprobs)) == 1  # the distribution before the grammar
    assert not counts[~allowed].any()
    assert chisquare(counts[allowed], (shares / shares.sum() * number)[allowed]).pvalue > 1e-4
    with pytest.raises(rlx.Error, match="excludes all tokens"):
        Sampler(GenerationOptions(logit_bias={3: -np.inf}), [], 0, count).choose(logits, np.arange(count) == 3)


_ARITHMETIC = """
root ::= (expr "=" ws term "\\n")+
expr ::= term ([-+*/] term)*
term ::= name | num | "(" ws expr ")" ws
name ::= [a-z] [a-z0-9_]{0,3} ws
num  ::= [0-9]{1,3} ws
ws   ::= [ \\t\\n]{0,2}  # white space may be the end of a line
"""


def test_generations(model: rlx.llm.LLM) -> None:
    options: list[dict[str, Any]] = [
        {"grammar": _ARITHMETIC, "temperature": 1.0, "seed": 1, "max_tokens": 30},
        {"grammar": 'root ::= [a-z]{3,9} " " [0-9]+ "."', "temperature": 2.0, "seed": 2, "logprobs": 2},
        {"grammar": 'start: /[a-z]{12}/ "é"', "temperature": 1.0, "seed": 3, "repetition_penalty": 1.5},
        {"grammar": 'root ::= "the" [a-z]+', "stop": ["he"], "temperature": 1.0, "seed": 4},
    ]
    for keywords in options:
        completion = model.generate(_PROMPT, **keywords)
        chunks = list(model.stream(_PROMPT, **keywords))
        assert "".join(chunk.text for chunk in chunks) == completion.text
        assert [token for chunk in chunks for token in chunk.tokens] == completion.tokens
        assert chunks[-1].finish_reason == completion.finish_reason
        alone = model.generate(_PROMPT, n=2, **keywords)
        assert alone[0].text == completion.text
        assert alone[1].text == model.generate(_PROMPT, **keywords | {"seed": keywords["seed"] + 1}).text
    assert completion.text == "t" and completion.finish_reason == "stop"
    number = model.generate(_PROMPT, **options[1])
    assert re.fullmatch(r"[a-z]{3,9} [0-9]+\.", number.text) and number.finish_reason == "stop"


def test_ends(model: rlx.llm.LLM) -> None:
    """A text ends when the grammar cannot continue it, or when it is complete and the model ends it."""
    eos = model.tokenizer.eos_token_id
    assert eos is not None
    fixed = model.generate(_PROMPT, grammar='root ::= "the inn"')
    assert (fixed.text, fixed.finish_reason) == ("the inn", "stop")
    assert model.generate(_PROMPT, grammar='root ::= "ab"', max_tokens=2).finish_reason == "stop"
    part = model.generate(_PROMPT, grammar='root ::= "abcd"', max_tokens=2)
    assert (part.text, part.finish_reason) == ("ab", "length")
    least = model.generate(_PROMPT, grammar="root ::= [a-c]{3,}", logit_bias={eos: 1e4})
    assert re.fullmatch("[a-c]{3}", least.text) and least.finish_reason == "stop"
    nothing = model.generate(_PROMPT, grammar='root ::= ""')
    assert (nothing.text, nothing.tokens, nothing.finish_reason) == ("", [], "stop")
    answer = model.chat([{"role": "user", "content": "the end"}], grammar='root ::= "yes" | "no"')
    assert answer.text in ("yes", "no") and answer.finish_reason == "stop"
    with pytest.raises(rlx.Error, match="excludes all tokens"):
        model.generate(_PROMPT, grammar='root ::= "a"', logit_bias=dict.fromkeys(range(260), -np.inf))


def test_the_rows_of_a_padded_embedding_are_excluded(tmp_path: Path) -> None:
    path = write_model(tmp_path / "padded.gguf", rows=300)
    with rlx.llm.load(path, threads=1) as model:
        completion = model.generate("the", grammar="root ::= [a-z]{5}", logit_bias={290: 1e4})
        assert re.fullmatch("[a-z]{5}", completion.text)


def test_threads(model: rlx.llm.LLM) -> None:
    grammars = ["root ::= [a-z]{8}", "root ::= [0-9]{8}", 'root ::= "(" root ")" | [A-Z]{4}', 'start: "é"+ /[a-z]/']
    keywords: dict[str, Any] = {"temperature": 1.0, "seed": 5, "max_tokens": 12}
    expected = [model.generate(_PROMPT, grammar=grammar, **keywords).text for grammar in grammars]
    found: dict[int, str] = {}

    def run(i: int) -> None:
        found[i] = model.generate(_PROMPT, grammar=grammars[i % 4], **keywords).text

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(8)] == expected * 2


def test_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(rlx.Error, match=r"needs the package 'llguidance'[\s\S]*rlx\[llm\]"):
        constraint_source(None, 'root ::= "not checked before"')


def _chain(count: int) -> str:
    return "root ::= x0\n" + "".join(f'x{i} ::= "a" x{i + 1} | "b" x0\n' for i in range(count)) + f'x{count} ::= "c"\n'


def _line(count: int) -> str:
    return "root ::= r0\n" + "".join(f"r{i} ::= [a] r{i + 1}\n" for i in range(count)) + f'r{count} ::= "b"\n'


_REFUSED: dict[str, tuple[str, str]] = {
    "no kind": ("[a-z]+", "neither a line"),
    "no root": ('x ::= "a"', "no rule 'root'"),
    "unknown rule": ("root ::= x", "'x', which is not defined"),
    "infinite": ('root ::= "a" x\nx ::= "b" x', "always contains itself"),
    "unknown terminal": ('start: "a"\n  | foo', "in line 1, column 8: there is no rule or terminal 'foo'"),
    "two rules": ('start: "a"\nstart: "b"', "in line 2, column 8: 'start' is defined twice"),
    "terminal in itself": ("start: A\nA: B\nB: A", "in line 3, column 4: the terminal 'A' contains itself"),
    "import": ('%import x.y\nstart: "a"', "in line 1, column 1: there is nothing called 'x.y' to import"),
    "look-ahead": ("start: /a(?=b)/", r"'a\(\?=b\)' is not a regular expression that can be enforced: look-around"),
    "crossed counts": ('start: "a"{3,1}', "a repetition has a largest count below its least one"),
    "no complete text": ("start: start", "grammar is not valid: no text is complete"),
    "two values in a schema": ('start: %json {"type": "null", "type": "null"}', "'type' occurs twice"),
    "schema inside": (
        'start: %json {"minLength": 3, "maxLength": 2, "type": "string"}',
        "after %json, #/minLength: no value",
    ),
    "other message": ('start: %regex {"x": 1}', "llguidance reports 'failed to parse"),
    "open class": ("root ::= [a-z", "']'"),
    "open text": ('root ::= "a', "at the end of a text"),
    "empty class": ("root ::= []", "a character in the class"),
    "open group": ('root ::= ("a"', r"expected '\)'"),
    "backward range": ("root ::= [z-a]", "not before 'z'"),
    "escape": ('root ::= "\\q"', "one of the escapes"),
    "surrogate": ('root ::= "\\uD800"', "number of a character"),
    "too large": ('root ::= "\\U00110000"', "number of a character"),
    "count": ('root ::= "a"{3,1}', "at least 3"),
    "large count": ('root ::= "a"{99999999999}', "digits"),
    "tokens": ("root ::= <|eot_id|>", "tokens in a grammar"),
    "marks": ('root ::= "a"' + "*" * 9000, "marks of repetition"),
    "nesting": ("root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "levels of parentheses"),
    "unknown in Lark": ("start: x", "there is no rule or terminal 'x'"),
    "regular expression": ("start: /[a-/", "not valid"),
    "lookahead": ("start: /a(?=b)/", "look-around"),
    "temperature": ('start: x\nx[temperature=0.5]: "a"', "temperature="),
    "options": ('%llguidance {"no_forcing": false}\nstart: "a"', "options of %llguidance"),
    "lenient schema": ('start: %json {"x-guidance": {"lenient": true}, "not": {}}', "'x-guidance' cannot be enforced"),
    "keyword in Lark": ('start: %json {"typ": "string"}', "'typ' cannot be enforced"),
    "token in Lark": ('start: <|eot_id|> "a"', "there is no control token '<.eot_id.>'"),
    "other grammar": ("start: @other", "grammars by name are not supported"),
    "size": ("root ::= " + '"a" ' * 30000, "at most 65536"),
    "half a character": ('root ::= "\udcff"', "not valid Unicode"),
    "long chain": (_chain(2300), "too complex"),
    "nested regular expression": ("start: /" + "(" * 9000 + "a" + ")" * 9000 + "/", "not valid"),
    "doubled": ("start: A0\n" + "".join(f"A{i}: A{i + 1} A{i + 1}\n" for i in range(40)) + 'A40: "a"', "not valid"),
    "long chain without recursion": (_line(3000), "not valid|too complex"),
    "long cycle": (_line(3000).replace('"b"', "r0"), "always contains itself"),
    "both": ("both", "both are given"),
    "end ignored": ("ignored", "ignore_eos cannot be used"),
    "number": ("number", "grammar must be a text"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_refused(model: rlx.llm.LLM, case: str) -> None:
    grammar, message = _REFUSED[case]
    options: dict[str, Any] = {
        "both": {"schema": {}, "grammar": "root ::= [a]"},
        "ignored": {"grammar": "root ::= [a]", "ignore_eos": True},
        "number": {"grammar": 5},
    }.get(grammar, {"grammar": grammar})
    start = time.monotonic()
    with pytest.raises(rlx.Error, match=message):
        model.stream(_PROMPT, max_tokens=2, **options)
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "a"{1,9999999}',
        'root ::= ((("a"? "b"?){1000}){1000}){1000}',
        "root ::= root root | [ab]",
        'root ::= ""* | root root root',
        "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(40)) + "r40 ::= [ab]? | root",
        'root ::= ("a" | "b")* "a" ("a" | "b"){200}',
        "start: /((a{1,999}){1,999}){1,999}/",
        "root ::= " + " ".join('"a"?' for _ in range(3000)),
    ],
)
def test_large_grammars_take_bounded_time(model: rlx.llm.LLM, grammar: str) -> None:
    start = time.monotonic()
    try:
        completion = model.generate(_PROMPT, grammar=grammar, max_tokens=20, temperature=1.0, seed=0)
        assert set(completion.text) <= {"a", "b"}
    except rlx.Error:
        pass
    assert time.monotonic() - start < 60


def test_a_grammar_is_checked_once(monkeypatch: pytest.MonkeyPatch, model: rlx.llm.LLM) -> None:
    """For several texts, and when a client repeats a mistake, which is an error of its own each time."""
    counts: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        function = getattr(module, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, counted)

    count(subprocess, "run")
    count(grammar_source, "checked_schema")
    schema = {"enum": ["checked once"]}
    assert {c.text for c in model.generate(_PROMPT, schema=schema, n=8)} == {'"checked once"'}
    assert counts == {"run": 1, "checked_schema": 1}
    problems = list[rlx.Error]()
    for _ in range(3):
        with pytest.raises(rlx.Error, match="grammar") as caught:
            model.generate(_PROMPT, grammar="start: a_rule_that_is_not_there")
        problems.append(caught.value)
    assert counts["run"] == 2 and len({str(problem) for problem in problems}) == 1
    assert len({id(problem) for problem in problems}) == 3
