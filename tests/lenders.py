"""Arrays that another library lends through DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir import dlpack


class Lent:
    """An object that has only `__dlpack__`, and records its arguments."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.asked: dict[str, Any] = {}

    def __dlpack__(self, **options: Any) -> Any:
        self.asked = options
        return dlpack.lent(self.array, **options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class LentBefore2023(Lent):
    """An object whose `__dlpack__` does not take `max_version` and `copy`."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return dlpack.lent(self.array)
