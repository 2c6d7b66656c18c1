"""Features of the first Vulkan device that IREE's runtime does not report, read through the Vulkan loader."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_uint32, c_void_p
from functools import cache

_LIBRARIES = ("libvulkan.so.1", "libvulkan.dylib", "vulkan-1.dll")
_CREATE_INFO = 1  # VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
# The place of each feature in VkPhysicalDeviceFeatures, an array of 55 32-bit truth values.
_PLACES = {"shaderFloat64": 39, "shaderInt64": 40, "shaderInt16": 41}
_COUNT = 55


class _InstanceInfo(ctypes.Structure):
    """VkInstanceCreateInfo, without layers and extensions."""

    _fields_ = (
        ("type", c_int),
        ("next", c_void_p),
        ("flags", c_uint32),
        ("application", c_void_p),
        ("layer_count", c_uint32),
        ("layers", POINTER(c_char_p)),
        ("extension_count", c_uint32),
        ("extensions", POINTER(c_char_p)),
    )


@cache
def core_features() -> frozenset[str]:
    """Return the names of the features that the first device has: some of `_PLACES`; none if there is no device."""
    loader = _loader()
    if loader is None:
        return frozenset()
    instance, info = c_void_p(), _InstanceInfo(type=_CREATE_INFO)
    if loader.vkCreateInstance(byref(info), None, byref(instance)):
        return frozenset()
    try:
        count, device = c_uint32(1), c_void_p()
        loader.vkEnumeratePhysicalDevices(instance, byref(count), byref(device))
        if not count.value:
            return frozenset()
        features = (c_uint32 * _COUNT)()
        loader.vkGetPhysicalDeviceFeatures(device, features)
        return frozenset(name for name, place in _PLACES.items() if features[place])
    finally:
        loader.vkDestroyInstance(instance, None)


def _loader() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
