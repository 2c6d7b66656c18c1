"""`GrammarConstraint`: the tokens that can continue a text of a grammar."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from rlx.llm.grammar.isolation import LIMITS, llguidance
from rlx.llm.grammar.library_messages import grammar_reason
from rlx.llm.tokenizer import Tokenizer
from rlx.llm.tokenizer.library import converted
from rlx.llm.tokenizer.vocabulary import HIDDEN, Vocabulary
from rlx.support.errors import Error
from rlx.support.locks import holding, make_lock

_MARKER = 0xFF  # the library's mark of control tokens; never a byte of UTF-8
_lock = make_lock()
# The vocabulary of each tokenizer in the library's form. Making it takes a second for 150,000 tokens.
_vocabularies: weakref.WeakKeyDictionary[Tokenizer, tuple[Any, np.ndarray]] = weakref.WeakKeyDictionary()


class GrammarConstraint:
    """The state of a text that follows a grammar.

    Args:
        source: The grammar, as `constraint_source` returns it.
        tokenizer: The tokenizer.
        vocab_size: The number of logits. Ids after the last token of the tokenizer are excluded.

    Raises:
        Error: The grammar names a token that the tokenizer does not have, or it is too complex.
    """

    def __init__(self, source: str, tokenizer: Tokenizer, vocab_size: int) -> None:
        library = llguidance()
        vocabulary, self._has_text = holding(_lock, _library_vocabulary, tokenizer)
        self._size = vocab_size
        self._ends = sorted(tokenizer.eos_token_ids)
        with converted("the grammar cannot be compiled"):
            limits = library.LLParserLimits(**LIMITS)
            grammar = library.LLMatcher.grammar_from_lark(source)
            self._matcher = library.LLMatcher(vocabulary, grammar, log_level=0, limits=limits)
        self._check()

    @property
    def is_complete(self) -> bool:
        """Whether the text is complete, and the grammar cannot continue it."""
        return self._matcher.is_stopped()

    def allowed(self) -> np.ndarray:
        """Return which tokens can continue the text, bool `[vocab_size]`. Those that end it can if the text is complete.

        Raises:
            Error: There is none, or the grammar is too complex.
        """
        with converted("the grammar cannot be continued"):
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            self._check()
            can_end = self._matcher.is_accepting()
        allowed = np.zeros(self._size, np.bool_)
        count = len(self._has_text)
        allowed[:count] = np.unpackbits(bits, bitorder="little")[:count] & self._has_text
        allowed[self._ends] = can_end
        return allowed

    def accept(self, token: int) -> None:
        """Add an allowed token to the text.

        Raises:
            Error: The grammar is too complex.
        """
        with converted("the grammar cannot be continued"):
            self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            message = self._matcher.get_error().removesuffix("<non-verbose/>").strip()
            if message.startswith("NoExtension"):
                raise Error(
                    "the vocabulary has no token that continues a text of the grammar",
                    hint="the vocabulary lacks a character, or no text is complete: the grammar contradicts itself",
                )
            raise Error(f"the grammar cannot be followed: {grammar_reason(message)}")


class LibraryVocabulary:
    """A vocabulary as `llguidance` reads one.

    Attributes:
        tokens: The bytes of each token. Control tokens have none that a text could match.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary):
        count = len(vocabulary.tokens)
        self.tokens = [_bytes(vocabulary, token_id) for token_id in range(count)]
        self.special_token_ids = [i for i in range(count) if vocabulary.kinds[i] in HIDDEN or i in vocabulary.ends]
        # One more token, if none ends a text.
        self.eos_token_id = min(vocabulary.ends, default=count)
        if not vocabulary.ends:
            self.tokens.append(b"")
            self.special_token_ids.append(count)

    def __call__(self, text: bytes) -> list[int]:
        """Return the ids of a text. The library asks only for texts that a grammar forces, and that is switched off."""
        return []


def _bytes(vocabulary: Vocabulary, token_id: int) -> bytes:
    piece = vocabulary.piece(token_id)
    return b"" if _MARKER in piece else piece


def _library_vocabulary(tokenizer: Tokenizer) -> tuple[Any, np.ndarray]:
    """Return the vocabulary in the library's form, and which tokens have text, bool `[tokenizer.vocab_size]`."""
    found = _vocabularies.get(tokenizer)
    if found is None:
        vocabulary = LibraryVocabulary(tokenizer.vocabulary)
        ends = sorted(tokenizer.eos_token_ids) or [vocabulary.eos_token_id]
        with converted("the vocabulary cannot be used with a grammar"):
            library_vocabulary = llguidance().LLTokenizer(vocabulary, eos_token=ends)
        has_text = np.ones(tokenizer.vocab_size, np.bool_)
        has_text[[i for i in vocabulary.special_token_ids if i < len(has_text)]] = False
        found = _vocabularies[tokenizer] = library_vocabulary, has_text
    return found
