"""The settings of a tokenizer in the JSON files of a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlx.support.errors import Error
from rlx.support.files import read_bytes, read_json
from rlx.support.short import short_repr

_LARGEST_TEMPLATE = 1 << 22
_LARGEST_ID = 1 << 24


@dataclass(frozen=True)
class AddedText:
    """A token that a folder adds to the vocabulary."""

    text: str
    is_control: bool


@dataclass(frozen=True)
class FolderSettings:
    """The settings of a tokenizer. Those that the files do not have are None or empty.

    Attributes:
        folder: The folder.
        bos: The token that starts a text.
        eos: The token that ends a text.
        adds_bos: Whether `bos` is put in front of texts.
        adds_eos: Whether `eos` is put at the end of texts.
        ends: Ids that end a generation.
        added: Tokens that are added to the vocabulary, by id.
        templates: Chat templates by name.
    """

    folder: Path
    bos: str | None
    eos: str | None
    adds_bos: bool | None
    adds_eos: bool | None
    ends: frozenset[int]
    added: dict[int, AddedText] = field(default_factory=dict[int, AddedText])
    templates: dict[str, str] = field(default_factory=dict[str, str])


def folder_settings(folder: Path) -> FolderSettings:
    """Return the settings in `tokenizer_config.json`, `special_tokens_map.json`, `generation_config.json` and others.

    Raises:
        Error: A file is damaged, or a value has another type.
    """
    config = _JsonFile(folder / "tokenizer_config.json")
    special = _JsonFile(folder / "special_tokens_map.json")
    return FolderSettings(
        folder,
        bos=config.token("bos_token") or special.token("bos_token"),
        eos=config.token("eos_token") or special.token("eos_token"),
        adds_bos=config.flag("add_bos_token"),
        adds_eos=config.flag("add_eos_token"),
        ends=_ends(folder),
        added=_added(folder, config),
        templates=_templates(folder, config),
    )


class _JsonFile:
    """An object in a JSON file; a missing file has no entries."""

    def __init__(self, path: Path):
        self.path = path
        self.values: Mapping[str, Any] = read_json(path) if path.is_file() else {}
        if not isinstance(self.values, dict):
            raise Error(f"{path}: expected an object, got {short_repr(self.values)}")

    def error(self, key: str, expected: str) -> Error:
        return Error(f"{self.path}: expected '{key}' to be {expected}, got {short_repr(self.values[key])}")

    def token(self, key: str) -> str | None:
        """Return the text of a token, which is a string or an object with `content`."""
        value = self.values.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        if text is not None and not isinstance(text, str):
            raise self.error(key, "a token")
        return text or None

    def flag(self, key: str) -> bool | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, "a boolean")
        return value

    def ids(self, key: str) -> frozenset[int]:
        """Return the ids of an entry that is an id, a list of ids or missing."""
        value = self.values.get(key)
        listed = [] if value is None else value if isinstance(value, list) else [value]
        if not all(type(i) is int and i >= 0 for i in listed):
            raise self.error(key, "an id or a list of ids")
        return frozenset(listed)


def _ends(folder: Path) -> frozenset[int]:
    """Return the ids that end a generation: those of `generation_config.json`, or else of `config.json`."""
    ends = _JsonFile(folder / "generation_config.json").ids("eos_token_id")
    return ends or _JsonFile(folder / "config.json").ids("eos_token_id")


def _added(folder: Path, config: _JsonFile) -> dict[int, AddedText]:
    result: dict[int, AddedText] = {}
    older = _JsonFile(folder / "added_tokens.json")
    for text, token_id in older.values.items():
        if type(token_id) is not int or not 0 <= token_id < _LARGEST_ID:
            raise older.error(text, "an id")
        result[token_id] = AddedText(text, False)
    decoder = config.values.get("added_tokens_decoder")
    if decoder is None:
        return result
    if not isinstance(decoder, dict):
        raise config.error("added_tokens_decoder", "an object")
    for name, token in decoder.items():
        text = token.get("content") if isinstance(token, dict) else None
        if not isinstance(text, str) or not name.isascii() or not name.isdigit() or int(name) >= _LARGEST_ID:
            raise Error(f"{config.path}: expected 'added_tokens_decoder' to have tokens by id, got {short_repr(token)}")
        result[int(name)] = AddedText(text, bool(token.get("special")))
    return result


def _templates(folder: Path, config: _JsonFile) -> dict[str, str]:
    """Return chat templates by name. Templates in files of their own precede those in `tokenizer_config.json`."""
    result: dict[str, str] = {}
    for source in (_JsonFile(folder / "chat_template.json"), config):
        value = source.values.get("chat_template")
        if isinstance(value, str):
            result["default"] = value
            continue
        for entry in [] if value is None else value if isinstance(value, list) else [value]:
            name, text = (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
            if not isinstance(name, str) or not isinstance(text, str):
                raise source.error("chat_template", "a text or a list of objects with 'name' and 'template'")
            result[name] = text
    files = {"default": folder / "chat_template.jinja"}
    files |= {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    for name, path in files.items():
        if path.is_file():
            try:
                result[name] = read_bytes(path, _LARGEST_TEMPLATE).decode()
            except UnicodeDecodeError:
                raise Error(f"{path} is not valid UTF-8") from None
    return result
