"""The devices that a session can be opened on."""

from __future__ import annotations

from enum import Enum
from typing import Any

from rlx.ir.attributes import suggestion
from rlx.ir.errors import Error


class Device(Enum):
    """A kind of device. Values are the names of compile targets."""

    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"
    VULKAN = "vulkan"
    METAL = "metal"
    VMVX = "vmvx"
    XLA = "xla"

    @classmethod
    def of(cls, value: Any) -> Device:
        """A device from itself or its name.

        Raises:
            Error: There is no such device.
        """
        if isinstance(value, cls):
            return value
        names = [d.value for d in cls]
        if isinstance(value, str) and value.lower() in names:
            return cls(value.lower())
        close = suggestion(value.lower(), names) if isinstance(value, str) else ""
        raise Error(f"unknown device {value!r}{close}; known: {', '.join(names)}")
