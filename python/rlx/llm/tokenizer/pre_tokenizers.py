r"""The pre-tokenizers that `tokenizer.ggml.pre` names: regexes that split a text before byte-level BPE.

Several regexes are applied one after the other. Each splits the pieces of the one before it at its matches; text
between two matches is a piece as well. Source of names and regexes: llama.cpp, src/llama-vocab.cpp, and the
`tokenizer.json` of the models that it quotes. Where llama.cpp approximates a regex (the case of letters outside ASCII
in `tekken` and `gpt-4o`), this table has the model's own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PreTokenizer:
    """One entry of the table.

    Attributes:
        regexes: Regexes of Oniguruma, in the order of their application.
        takes_whole: A piece that is a token is not split further, whatever the merges are.
        adds_bos: A text starts with BOS, unless the file says otherwise.
        has_bos: The id of BOS has a default.
        is_raw: Tokens are texts in which ▁ represents a space, instead of characters that represent bytes.
    """

    regexes: tuple[str, ...]
    takes_whole: bool = False
    adds_bos: bool = False
    has_bos: bool = True
    is_raw: bool = False


_SUFFIXES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_OTHER = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = rf"{_SUFFIXES}|{_WORD}|\p{{N}}{{1,3}}|{_OTHER}|{_SPACES}"
_QWEN2 = rf"{_SUFFIXES}|{_WORD}|\p{{N}}|{_OTHER}|{_SPACES}"
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_LINES = r"[^\n]+|[\n]+"


def _by_case(suffixes: str, numbers: str, other: str = r" ?[^\s\p{L}\p{N}]+[\r\n/]*", but: str = "") -> str:
    """Return a regex for words whose capitals come first. `but` excludes characters from the letters."""
    start = r"[^\r\n\p{L}\p{N}]?"
    upper, lower = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]", rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]"
    return rf"{start}{upper}*{lower}+{suffixes}|{start}{upper}+{lower}*{suffixes}|{numbers}|{other}|{_SPACES}"


_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
# In these three steps, a run of digits is split into groups of three from the right. The regexes of the models have a
# lookahead that takes quadratic time in a long run.
_DIGITS_FROM_RIGHT = (r"\p{N}+", r"(?:\p{N}{3})+\z", r"\p{N}{3}")
_CASED_LATIN = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102"
    "\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)
_ASIAN = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff]+"
)
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
    "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
_GPT4O = _by_case(f"{_SUFFIXES}?", r"\p{N}{1,3}")
_KIMI = _by_case(f"{_SUFFIXES}?", r"\p{N}{1,3}", _OTHER, r"&&[^\p{Han}]")
_JAIS2 = "|".join(
    (
        rf"{_SUFFIXES}|{_WORD}|\p{{N}}{{1,3}}|{_OTHER}|\s*[\r\n]+",
        *(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)),
        r"\s{1,2}(?!\S)|\s",
    )
)

_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))
_PLAIN = {
    "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe a.x-4.0 mellum"
    " modern-bert mpt olmo jais trillion granite-docling exaone4": (_GPT2,),
    "starcoder refact command-r smollm codeshell exaone minerva-7b minerva mellum2": (r"\p{N}", _GPT2),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": (_QWEN2,),
    "dbrx smaug-bpe": (_LLAMA3,),
    "bloom poro-chat poro gpt3-finnish": (_BLOOM,),
    "viking": (_BLOOM, r"\p{N}"),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "qwen35": (
        rf"{_SUFFIXES}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",
    ),
    "deepseek-llm": (
        *(
            r"[\r\n]",
            rf"\s?[{_CASED_LATIN}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
        ),
        *(_HAN, r"\p{N}+"),
    ),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN, r"\p{N}"),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": (r"\p{N}{1,3}", _CJK, rf"{_DEEPSEEK}[\r\n]*|{_SPACES}"),
    "spark2_5": (r"\p{N}{1,3}", _CJK, rf"{_DEEPSEEK}|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"),
    "afmoe": (*_DIGITS_FROM_RIGHT, _ASIAN, rf"{_DEEPSEEK}[\r\n]*|{_SPACES}"),
    "superbpe": (r"\p{N}+", r"(?:\d{3})+(?!\d)", r"\d{3}"),
    "tiny_aya cohere2moe": (r"(?<!\d)\d++\b", r"\A\d{1,2}(?=(?:\d{3})+\z)", _GPT4O),
    "gpt-4o llama4 kanana2 talkie minimax-m2": (_GPT4O,),
    "kimi-k2": (rf"\p{{Han}}+|{_KIMI}",),
    "bailingmoe bailingmoe2 llada-moe": (
        rf"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_OTHER}|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    "seed-coder": (rf"{_SUFFIXES}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",),
    "ufakzeka": (rf"{_WORD}|\p{{N}}|{_OTHER}|{_SPACES}",),
    "laguna": (_LINES, _QWEN2),
    "exaone-moe": (
        rf"{_SUFFIXES}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    "jais-2": (_JAIS2,),
}
PRE_TOKENIZERS = {
    "": _DEFAULT,
    "default": _DEFAULT,
    **{name: PreTokenizer(regexes) for names, regexes in _PLAIN.items() for name in names.split()},
    **{
        name: PreTokenizer((_LLAMA3,), takes_whole=True, adds_bos=True)
        for name in [
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ]
    },
    "tekken": PreTokenizer((_by_case("", r"\p{N}"),), takes_whole=True, adds_bos=True),
    "granite-embed-multi-97m": PreTokenizer((_GPT4O,), takes_whole=True),
    "youtu": PreTokenizer((_YOUTU, _by_case(f"{_SUFFIXES}?", r"\p{N}")), takes_whole=True),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", rf"{_SUFFIXES}|{_WORD}|\p{{N}}+|{_OTHER}|{_SPACES}"), takes_whole=True),
    "chatglm-bpe": PreTokenizer((_LLAMA3,), has_bos=False),
    **{name: PreTokenizer((_LLAMA3,), has_bos=False, takes_whole=True) for name in ("glm4", "glm5", "chatglm4")},
    "chameleon": PreTokenizer(
        (
            *("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}"),
            *(r"[\p{P}!-/:-@\[-`{-~]", _GPT2),
        ),
        adds_bos=True,
    ),
    "gemma4": PreTokenizer((_LINES,), adds_bos=True, has_bos=False, is_raw=True),
    "granite-embed-multi-311m": PreTokenizer((_LINES,), adds_bos=True, is_raw=True),
    "sarvam-moe": PreTokenizer((_LINES,), is_raw=True),
}
