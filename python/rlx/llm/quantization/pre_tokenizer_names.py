"""The name in GGUF files of the pre-tokenizer of a `tokenizer.json`, which is found by its regexes.

llama.cpp compares the tokens of a text. Regexes are the same for all vocabularies of a family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlx.llm.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from rlx.support.errors import UnsupportedError
from rlx.support.short import short_repr

# Several names have the same regexes. These come first.
_PREFERRED = ("gpt-2", "llama-bpe", "qwen2", "smollm", "tekken", "gpt-4o", "deepseek-v3", "falcon", "qwen35", "dbrx")
_LAST = r"|\s+"  # white space between two matches is a piece as well
_DIGITS = r"\p{N}"


def pre_tokenizer_name(data: Mapping[str, Any], takes_whole: bool, origin: str, remarks: list[str]) -> str:
    """Return the name of the pre-tokenizer of a byte-level BPE.

    Args:
        data: The content of `tokenizer.json`.
        takes_whole: Whether a piece that is a token is not split further.
        origin: The file, for messages.
        remarks: Gets a line if the file normalises texts.

    Raises:
        UnsupportedError: It has none of the known regexes.
    """
    for normalizer in _parts(data.get("normalizer"), "normalizers"):
        if normalizer.get("type") != "NFC":
            raise UnsupportedError(f"{origin}: GGUF files have no normalizer {short_repr(normalizer.get('type'))}")
        remarks.append("the tokenizer composes characters (NFC), and readers of GGUF files do not")
    regexes = tuple(_compared(regex) for regex in _regexes(data.get("pre_tokenizer"), origin))
    for name in (*_PREFERRED, *PRE_TOKENIZERS):
        known = PRE_TOKENIZERS[name]
        same = tuple(_compared(regex) for regex in known.regexes) == regexes
        if name and same and known.takes_whole == takes_whole and not known.is_raw:
            return name
    listed = ", ".join(name for name in PRE_TOKENIZERS if name)
    whole = ", and takes pieces that are tokens whole" if takes_whole else ""
    raise UnsupportedError(
        f"{origin}: the pre-tokenizer has the regexes {short_repr(regexes)}{whole}; known are those of {listed}"
    )


def _compared(regex: str) -> str:
    return regex.replace("++", "+").replace("?+", "?").removesuffix(_LAST)


def _parts(step: object, key: str) -> Iterator[Mapping[str, Any]]:
    if isinstance(step, dict) and step.get("type") == "Sequence":
        parts = step.get(key)
        for part in parts if isinstance(parts, list) else []:
            yield from _parts(part, key)
    elif isinstance(step, dict):
        yield step


def _regexes(pre_tokenizer: object, origin: str) -> Iterator[str]:
    """Yield the regexes that split a text, one after the other."""
    is_byte_level = False
    for step in _parts(pre_tokenizer, "pretokenizers"):
        match step:
            case {"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Isolated"} if not step.get("invert"):
                yield regex
            case {"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Removed", "invert": True}:
                yield regex  # the text between matches is empty in the known files
            case {"type": "Digits", "individual_digits": True}:
                yield _DIGITS
            case {"type": "Digits"}:
                yield r"\p{N}+"
            case {"type": "Punctuation", "behavior": "Contiguous"}:
                yield PRE_TOKENIZERS["falcon"].regexes[0]
            case {"type": "ByteLevel"} if not step.get("add_prefix_space"):
                is_byte_level = True
                if step.get("use_regex", True):
                    yield PRE_TOKENIZERS["gpt-2"].regexes[0]
            case _:
                kind = step.get("type")
                raise UnsupportedError(f"{origin}: the pre-tokenizer {short_repr(kind)} has no equal in GGUF files")
    if not is_byte_level:
        raise UnsupportedError(f"{origin}: expected a byte-level BPE, and its pre-tokenizer is not 'ByteLevel'")
