"""`Tokenizer`: converts texts to token ids, ids to texts, and messages to prompts."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, SupportsIndex, overload

from rlx.llm.tokenizer.chat_template import Message, render
from rlx.llm.tokenizer.stream import StreamDecoder
from rlx.llm.tokenizer.vocabulary import HIDDEN, TokenKind, Vocabulary
from rlx.support.errors import Error
from rlx.support.short import short_repr

_SPACE = b" "
# The parameters of `Tokenizer.apply_chat_template` that are not variables of templates.
RESERVED_VARIABLES = frozenset(("self", "messages", "tokenize", "tools", "chat_template"))


class TextEncoder(Protocol):
    """Encodes texts, without the ids in front of each text and after it."""

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """Return the ids of a text. Without `parse_special`, control tokens in it are plain text."""
        ...


class Tokenizer:
    """Converts texts to token ids and back.

    It is made by `tokenizer_from_gguf` and `tokenizer_from_folder`, and is thread-safe.

    Args:
        vocabulary: The tokens.
        encoder: Encodes texts.
        templates: Chat templates by name. The one named "default" is `chat_template`.
        origin: The file, for messages.

    Attributes:
        vocabulary: The tokens with their kinds.
        chat_template: The template that `apply_chat_template` uses, or None. A new value replaces all templates of the
            file.
    """

    def __init__(
        self, vocabulary: Vocabulary, encoder: TextEncoder, *, templates: Mapping[str, str] | None = None, origin: str
    ):
        self.vocabulary = vocabulary
        self._encoder = encoder
        self._templates = dict(templates or {})
        self._origin = origin

    def __repr__(self) -> str:
        return f"<Tokenizer of {self.vocab_size} tokens, {self._origin}>"

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self.vocabulary.tokens)

    @property
    def bos_token_id(self) -> int | None:
        """The id that starts a text, or None."""
        return self.vocabulary.bos

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text, or None. A generation ends at any of `eos_token_ids`."""
        return self.vocabulary.eos

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """All ids that end a generation: of a text, a turn or a message."""
        return self.vocabulary.ends

    @property
    def chat_template(self) -> str | None:
        """The Jinja template of the file, or the one that was set."""
        return self._templates.get("default")

    @chat_template.setter
    def chat_template(self, template: str | None) -> None:
        if template is not None and type(template) is not str:
            raise Error(f"chat_template must be the text of a template or None, got {short_repr(template)}")
        self._templates = {} if template is None else {"default": template}

    def encode(self, text: str, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        """Return the ids of a text.

        Args:
            text: The text.
            add_special_tokens: Add BOS, EOS and similar tokens, if the file says so.
            parse_special: Recognise control tokens in the text. If it is false, they are plain characters. User-defined
                tokens are always recognised.

        Raises:
            Error: The text is not a string or has half of a surrogate pair, or the vocabulary cannot represent it.
        """
        if not isinstance(text, str):
            raise Error(f"expected a text to encode, got {short_repr(text)}")
        try:
            text.encode()
        except UnicodeEncodeError as problem:
            raise Error(f"the text is not valid Unicode: {problem}") from None
        ids = self._encoder.encode(text, bool(parse_special))
        return [*self.vocabulary.prefix, *ids, *self.vocabulary.suffix] if add_special_tokens else ids

    def decode(self, ids: Iterable[SupportsIndex], skip_special_tokens: bool = False) -> str:
        """Return the text of ids. Bytes that are not UTF-8 become U+FFFD.

        Args:
            ids: Token ids.
            skip_special_tokens: Leave out control tokens and unknown tokens.

        Raises:
            Error: An id is not in the vocabulary.
        """
        return self._bytes(ids, bool(skip_special_tokens)).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[SupportsIndex]) -> bytes:
        """Return the bytes of ids, with the text of control tokens.

        Raises:
            Error: An id is not in the vocabulary.
        """
        return self._bytes(ids, False)

    def _bytes(self, ids: Iterable[SupportsIndex], skip: bool) -> bytes:
        vocabulary = self.vocabulary
        checked = [self._checked(i) for i in ids]
        if skip:
            checked = [i for i in checked if vocabulary.kinds[i] not in HIDDEN]
        pieces = [vocabulary.piece(i) for i in checked]
        first = next((i for i, piece in enumerate(pieces) if piece), None)
        # Encoding has put this space in front of the text. A control token in front of it is not part of the text.
        if first is not None and vocabulary.starts_with_space:
            pieces[first] = pieces[first].removeprefix(_SPACE)
        return b"".join(pieces)

    def _checked(self, token_id: SupportsIndex) -> int:
        try:
            result = operator.index(token_id)
        except TypeError:
            result = -1
        if isinstance(token_id, bool) or not 0 <= result < self.vocab_size:
            raise Error(f"expected a token id from 0 to {self.vocab_size - 1}, got {short_repr(token_id)}")
        return result

    def token(self, token_id: SupportsIndex) -> str:
        """Return the text of an id as the vocabulary has it, for example `Ġhello` or `▁hello`.

        Raises:
            Error: The id is not in the vocabulary.
        """
        return self.vocabulary.tokens[self._checked(token_id)]

    def id(self, token: str) -> int:
        """Return the id of a token, given its text as the vocabulary has it.

        Raises:
            Error: The vocabulary does not have the token.
        """
        found = self.vocabulary.ids.get(token) if isinstance(token, str) else None
        if found is None:
            raise Error(f"{self._origin}: the vocabulary has no token {short_repr(token)}")
        return found

    def kind(self, token_id: SupportsIndex) -> TokenKind:
        """Return the kind of a token.

        Raises:
            Error: The id is not in the vocabulary.
        """
        return self.vocabulary.kind(self._checked(token_id))

    def is_control(self, token_id: SupportsIndex) -> bool:
        """Return whether a token has no text: a control token or the unknown token.

        Raises:
            Error: The id is not in the vocabulary.
        """
        return self.vocabulary.kinds[self._checked(token_id)] in HIDDEN

    def stream_decoder(self, *, keeps_space: bool = False) -> StreamDecoder:
        """Return a decoder for tokens that arrive one at a time.

        Args:
            keeps_space: Keep the space of a first token such as `▁word`, because the text continues another one.
        """
        return StreamDecoder(self.vocabulary, keeps_space=keeps_space)

    @overload
    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tokenize: Literal[False] = False,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        **variables: Any,
    ) -> str: ...

    @overload
    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tokenize: Literal[True],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        **variables: Any,
    ) -> list[int]: ...

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tokenize: bool = False,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        **variables: Any,
    ) -> str | list[int]:
        """Return the prompt for a conversation.

        Args:
            messages: Dictionaries with `role` and `content`, and other entries that the template knows.
            tokenize: Return ids. They have no BOS except the one that the template writes.
            add_generation_prompt: End with the start of an answer.
            tools: Functions that the model may call, as JSON schemas.
            chat_template: The text of another template, or the name of one of the file's templates.
            variables: Further variables of the template, such as `enable_thinking` or `documents`.

        Raises:
            Error: There is no template, or it is not valid, raises an exception, or takes too much time or memory.
        """
        vocabulary = self.vocabulary
        special = {
            "bos_token": "" if vocabulary.bos is None else vocabulary.tokens[vocabulary.bos],
            "eos_token": "" if vocabulary.eos is None else vocabulary.tokens[vocabulary.eos],
        }
        text = render(
            self._template(chat_template, bool(tools)),
            messages,
            {**special, "documents": None, **variables, "tools": tools, "add_generation_prompt": add_generation_prompt},
        )
        return self.encode(text, add_special_tokens=False) if tokenize else text

    def _template(self, chosen: str | None, has_tools: bool) -> str:
        if chosen is not None:
            return self._templates.get(chosen, chosen)
        if has_tools and "tool_use" in self._templates:
            return self._templates["tool_use"]
        if "default" not in self._templates:
            names = ", ".join(sorted(self._templates))
            known = f"; it has templates with these names: {names}" if names else ""
            raise Error(f"{self._origin} has no chat template{known}", hint="pass chat_template=")
        return self._templates["default"]
