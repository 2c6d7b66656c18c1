"""The characters that represent bytes in the tokens of byte-level BPE.

Printable characters of Latin-1 represent themselves. The other 68 bytes are represented by the characters from U+0100
on, in their order. Source: `bytes_to_unicode` of OpenAI's GPT-2.
"""

from __future__ import annotations

_PRINTABLE = frozenset((*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)))
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

CHARACTER_OF = {byte: chr(byte) if byte in _PRINTABLE else chr(0x100 + _OTHERS.index(byte)) for byte in range(256)}
BYTE_OF = {character: byte for byte, character in CHARACTER_OF.items()}
