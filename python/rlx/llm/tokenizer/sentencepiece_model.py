"""Reader of `tokenizer.model`, the protocol buffer of SentencePiece.

Source of the field numbers: SentencePiece, src/sentencepiece_model.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from rlx.support.errors import Error

UNIGRAM, BPE = 1, 2
# Numbers of fields.
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE, _WHITE_SUFFIX, _UNK, _BOS, _EOS = 3, 24, 40, 41, 42
_CHARSMAP, _ADDS_PREFIX, _MERGES_SPACES, _ESCAPES = 2, 3, 4, 5
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Value = int | float | bytes


@dataclass
class SentencePieceModel:
    """The contents of a `tokenizer.model`.

    Attributes:
        tokens: The text of each piece.
        scores: The score of each piece.
        kinds: The kind of each piece, numbered as `TokenKind`.
        model_type: `UNIGRAM` or `BPE`.
        unknown: The id of the unknown token, or -1.
        bos: The id that starts a text, or -1.
        eos: The id that ends a text, or -1.
        charsmap: The character map that normalises a text, or b"".
        adds_space: A space is put in front of a text.
        merges_spaces: Spaces at both ends are removed, and others merged.
    """

    tokens: list[str] = field(default_factory=list[str])
    scores: list[float] = field(default_factory=list[float])
    kinds: bytearray = field(default_factory=bytearray)
    model_type: int = UNIGRAM
    unknown: int = 0
    bos: int = 1
    eos: int = 2
    charsmap: bytes = b""
    adds_space: bool = True
    merges_spaces: bool = True


def parsed_sentencepiece(data: bytes, origin: str) -> SentencePieceModel:
    """Return the contents of a `tokenizer.model`.

    Args:
        data: The file.
        origin: Its name, for messages.

    Raises:
        Error: It is damaged, or the kind of model is not supported.
    """
    model = SentencePieceModel()
    try:
        for number, value in _fields(data):
            if not isinstance(value, bytes):
                continue
            if number == _PIECE:
                _add_piece(model, value)
            elif number == _TRAINER:
                _read_trainer(model, value, origin)
            elif number == _NORMALIZER:
                _read_normalizer(model, value, origin)
    except (ValueError, IndexError, struct.error):
        raise Error(f"{origin} is damaged: it is not a model of SentencePiece") from None
    if not model.tokens:
        raise Error(f"{origin} is not a model of SentencePiece: it has no pieces")
    return model


def _add_piece(model: SentencePieceModel, data: bytes) -> None:
    text, score, kind = "", 0.0, 1
    for number, value in _fields(data):
        if number == _TEXT and isinstance(value, bytes):
            text = value.decode()
        elif number == _SCORE and isinstance(value, float):
            score = value
        elif number == _KIND and isinstance(value, int):
            kind = value
    if not 1 <= kind <= 6 or score != score:
        raise ValueError
    model.tokens.append(text)
    model.scores.append(score)
    model.kinds.append(kind)


def _read_trainer(model: SentencePieceModel, data: bytes, origin: str) -> None:
    for number, value in _fields(data):
        if not isinstance(value, int):
            continue
        if number == _MODEL_TYPE:
            model.model_type = value
        elif number == _UNK:
            model.unknown = _signed(value)
        elif number == _BOS:
            model.bos = _signed(value)
        elif number == _EOS:
            model.eos = _signed(value)
        elif number == _WHITE_SUFFIX and value:
            raise Error(f"{origin}: models with spaces at the end of words are not supported")
    if model.model_type not in (UNIGRAM, BPE):
        raise Error(f"{origin}: expected a unigram (1) or BPE (2) model of SentencePiece, got {model.model_type}")


def _read_normalizer(model: SentencePieceModel, data: bytes, origin: str) -> None:
    for number, value in _fields(data):
        if number == _CHARSMAP and isinstance(value, bytes):
            model.charsmap = value
        elif number == _ADDS_PREFIX:
            model.adds_space = bool(value)
        elif number == _MERGES_SPACES:
            model.merges_spaces = bool(value)
        elif number == _ESCAPES and not value:
            raise Error(f"{origin}: models that do not escape spaces are not supported")


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield number and value of each field of a message. Floats are the only 32-bit values of these messages."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
        elif wire == _FIXED32:
            yield number, struct.unpack_from("<f", data, position)[0]
            position += 4
        elif wire == _FIXED64:
            struct.unpack_from("<q", data, position)
            position += 8
        elif wire == _BYTES:
            size, position = _varint(data, position)
            if size > len(data) - position:
                raise ValueError
            yield number, data[position : position + size]
            position += size
        else:
            raise ValueError


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError


def _signed(value: int) -> int:
    """Return an int32, which is stored in 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value
