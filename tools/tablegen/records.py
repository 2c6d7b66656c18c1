"""The records that TableGen files describe, from our reader or from LLVM's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A field's value: a string, an integer (a bit is 0 or 1), a list, a dag, a record, or None if it is not set.
Value = Any


@dataclass(frozen=True)
class Dag:
    """`(operator value:$name, …)`."""

    operator: Record
    arguments: tuple[tuple[Value, str], ...]


@dataclass(eq=False)
class Record:
    """One record: its name (generated for a `Class<…>` used as a value), classes, location and fields."""

    name: str
    path: str
    line: int
    classes: list[str] = field(default_factory=list)
    fields: dict[str, Value] = field(default_factory=dict)
    anonymous: bool = False

    def __getitem__(self, name: str) -> Value:
        return self.fields[name]

    def is_a(self, class_name: str) -> bool:
        """Return whether the record is of a class or of a class derived from it."""
        return class_name in self.classes

    def __repr__(self) -> str:
        return f"<{self.name}: {', '.join(self.classes)}>"


class Records(Mapping[str, Record]):
    """Records by name, in the order of their definitions."""

    def __init__(self, records: dict[str, Record]):
        self._records = records

    def __getitem__(self, name: str) -> Record:
        return self._records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def of_class(self, class_name: str) -> list[Record]:
        """Return the records of a class, sorted by file and line."""
        members = [r for r in self._records.values() if r.is_a(class_name) and not r.anonymous]
        return sorted(members, key=lambda record: (record.path, record.line))


def from_json(path: Path) -> Records:
    """Return the records that `llvm-tblgen --dump-json` has written."""
    dumped = json.loads(path.read_text(encoding="utf-8"))
    records: dict[str, Record] = {}
    for name, entry in dumped.items():
        if not name.startswith("!"):
            source, line = entry["!locs"][0].rsplit(":", 1)
            records[name] = Record(name, source, int(line), entry["!superclasses"], {}, entry["!anonymous"])
    for name, record in records.items():
        record.fields = {k: _decoded(v, records) for k, v in dumped[name].items() if not k.startswith("!")}
    return Records(records)


def _decoded(value: Any, records: dict[str, Record]) -> Value:
    if isinstance(value, list):
        return [_decoded(item, records) for item in value]
    if not isinstance(value, dict):
        return value
    if value["kind"] == "def":
        return records[value["def"]]
    if value["kind"] == "dag":
        arguments = tuple((_decoded(item, records), name or "") for item, name in value["args"])
        return Dag(_decoded(value["operator"], records), arguments)
    return value["printable"]
