"""Results that unpack as SciPy's, and have more attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar


class UnpackedResult:
    """The base of results whose first attributes are the items of a tuple.

    Attributes:
        unpacked: The names of the items.
    """

    unpacked: ClassVar[tuple[str, ...]] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def __len__(self) -> int:
        return len(self.unpacked)

    def __getitem__(self, index: Any) -> Any:
        return tuple(getattr(self, name) for name in self.unpacked)[index]
