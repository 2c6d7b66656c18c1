"""Recognition of special tokens in a text, against the procedure of llama.cpp."""

from __future__ import annotations

import random

from rlx.llm.tokenizer.fragments import Fragment, SpecialTokens


def partitioned(text: str, ids: dict[str, int]) -> list[Fragment]:
    """Return the fragments of a text: one token after the other is searched in the remaining text, longest first."""
    fragments: list[Fragment] = [text]
    for token in sorted(ids, key=len, reverse=True):
        found: list[Fragment] = []
        for fragment in fragments:
            if isinstance(fragment, int):
                found.append(fragment)
                continue
            first, *rest = fragment.split(token)
            found.append(first)
            for part in rest:
                found += (ids[token], part)
        fragments = [fragment for fragment in found if fragment != ""]
    return fragments


def test_the_longest_token_comes_first(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(300):
        # One token of each length: the order of equally long ones is not defined.
        tokens = ["".join(r.choices("ab<", k=length)) for length in r.sample(range(1, 7), 4)]
        ids = {token: i for i, token in enumerate(tokens)}
        text = "".join(r.choices("ab<", k=r.randrange(20)))
        assert SpecialTokens(ids).split(text) == partitioned(text, ids), (text, tokens)


def test_a_token_at_the_end_is_not_read_beyond_it() -> None:
    tokens = SpecialTokens({" " * n: n for n in (2, 3, 5)})
    assert tokens.split("a    ") == ["a", 3, " "]
    assert tokens.split("  ") == [2]


def test_white_space_is_absorbed() -> None:
    ids = {"<mask>": 0, "<end>": 1}
    assert SpecialTokens(ids, left=[0], right=[1]).split("a <mask> b <end> \n c") == ["a", 0, " b ", 1, "c"]


def test_no_tokens_and_no_text() -> None:
    assert SpecialTokens({}).split("<s>") == ["<s>"]
    assert SpecialTokens({"<s>": 1}).split("") == []


def test_time_is_linear_in_the_length() -> None:
    ids = {f"<|{i}|>": i for i in range(2000)} | {" " * n: 2000 + n for n in range(2, 32)}
    tokens = SpecialTokens(ids)
    assert len(tokens.split("<|" * 100_000)) == 1
    assert len(tokens.split(" " * 310_000)) == 10_000
    assert len(tokens.split("<|7|>" * 50_000)) == 50_000
