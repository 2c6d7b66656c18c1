"""Normalisation of texts as in SentencePiece.

A character map is a double-array trie of 32-bit units, and a block of replacements that end with a NUL. Source of the format:
Darts-clone by Susumu Yata, and llama.cpp, src/llama-vocab.cpp.
"""

from __future__ import annotations

import re
import struct

from rlx.llm.tokenizer.vocabulary import METASPACE
from rlx.support.errors import Error

_HEADER = struct.Struct("<I")
_SPACES = re.compile(" +")
_LABEL, _VALUE, _HAS_LEAF = 0x800000FF, 0x7FFFFFFF, 0x100


class CharacterMap:
    """Replaces the longest known prefix at each position of a text.

    Args:
        data: The map: the size of the trie in bytes, the trie, the replacements.
        where: The file and the name of the entry, for messages.

    Raises:
        Error: The map is truncated.
    """

    def __init__(self, data: bytes, where: str):
        size = _HEADER.unpack_from(data)[0] if len(data) >= _HEADER.size else -1
        if not 4 <= size < len(data) - _HEADER.size or size % 4:
            raise Error(f"{where} is damaged: expected the size of a trie, the trie and its replacements")
        self._units = struct.unpack_from(f"<{size // 4}I", data, _HEADER.size)
        self._replacements = data[_HEADER.size + size :]
        self._where = where
        self._root = self._step(0, 0)
        self._inert: dict[str, bool] = {}

    def normalise(self, text: str) -> str:
        """Return the text with its replacements.

        Raises:
            Error: The map is damaged.
        """
        result: list[str] = []
        i = 0
        while i < len(text):
            character = text[i]
            inert = self._inert.get(character)
            if inert is None:
                inert = self._inert[character] = self._walk(self._root, character)[0] is None
            if inert:
                result.append(character)
                i += 1
                continue
            length, replacement = self._longest(text, i)
            result.append(replacement)
            i += length
        return "".join(result)

    def _longest(self, text: str, start: int) -> tuple[int, str]:
        """Return the length of the longest known prefix at a position and its replacement."""
        length, replacement = 1, text[start]
        node = self._root
        for end in range(start, len(text)):
            found, value = self._walk(node, text[end])
            if found is None:
                break
            node = found
            if value is not None:
                length, replacement = end - start + 1, self._replacement(value)
        return length, replacement

    def _walk(self, node: int, character: str) -> tuple[int | None, int | None]:
        """Return the node after a character and its value, None where there is none."""
        value = None
        for byte in character.encode():
            if not byte:
                return None, None
            position = node ^ byte
            unit = self._unit(position)
            if unit & _LABEL != byte:
                return None, None
            node = self._step(position, unit)
            value = self._unit(node) & _VALUE if unit & _HAS_LEAF else None
        return node, value

    def _step(self, position: int, unit: int) -> int:
        """Return the position of a node's children, without their labels."""
        unit = unit or self._unit(position)
        return position ^ ((unit >> 10) << ((unit & 0x200) >> 6))

    def _unit(self, position: int) -> int:
        if position >= len(self._units):
            raise Error(f"{self._where} is damaged: its trie has {len(self._units)} units, but refers to {position}")
        return self._units[position]

    def _replacement(self, offset: int) -> str:
        end = self._replacements.find(b"\0", offset)
        try:
            if end < 0:
                raise ValueError
            return self._replacements[offset:end].decode()
        except ValueError:
            raise Error(f"{self._where} is damaged: there is no replacement at {offset}") from None


class TextNormaliser:
    """The normalisation of a SentencePiece model.

    Args:
        characters: The character map, or None.
        merges_spaces: Remove spaces at both ends, and merge others.
        adds_space: Put a space in front of texts. With `merges_spaces`, an empty one stays empty.
    """

    def __init__(
        self, characters: CharacterMap | None = None, *, merges_spaces: bool = False, adds_space: bool = False
    ):
        self._characters, self._merges_spaces, self._adds_space = characters, merges_spaces, adds_space

    def normalise(self, text: str, starts: bool, ends: bool) -> str:
        """Return a normalised text in which ▁ represents a space.

        Args:
            text: The text.
            starts: It is the start of a text, where spaces are added or removed.
            ends: It is the end of a text, where spaces are removed.

        Raises:
            Error: The character map is damaged.
        """
        if self._characters is not None:
            text = self._characters.normalise(text)
        if self._merges_spaces:
            text = text.lstrip(" ") if starts else text
            text = text.rstrip(f" {METASPACE}") if ends else text  # SentencePiece removes ▁ as well
            text = _SPACES.sub(" ", text)
        if self._adds_space and starts and (text or not (self._merges_spaces and ends)):
            text = f" {text}"
        return text.replace(" ", METASPACE)
