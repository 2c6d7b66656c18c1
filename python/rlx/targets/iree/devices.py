"""IREE's drivers and devices: opening and sharing them, and error messages for those that cannot be opened."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

from rlx.support.errors import ExecutionError
from rlx.support.locks import holding, make_lock
from rlx.support.packages import import_package
from rlx.targets.host import usable_cpus
from rlx.targets.iree.cpu import host_level, machine
from rlx.targets.iree.memory import configure_allocator, pools
from rlx.targets.iree.vulkan_features import core_features
from rlx.targets.protocol import DeviceInfo

LOCAL_DRIVERS = ("local-sync", "local-task")

# The stack size of a worker thread, that of other threads: LAPACK's routines with threads need more than the 128 KiB of IREE.
# It also covers the allocations of a dispatch (see targets.py). Pages that are not used take no memory.
_WORKER_STACK_BYTES = 8 << 20

_REQUIRED_SOFTWARE = {
    "cuda": "NVIDIA's driver (libcuda.so)",
    "hip": "ROCm's HIP runtime (libamdhip64.so)",
    "vulkan": "a Vulkan loader (libvulkan.so.1) and a driver for it",
}


# The open devices of this process.
_lock = make_lock()
_opened: dict[tuple[str, int], Any] = {}


def device(uri: str, threads: int | None = None) -> Any:
    """Open a device, or return it if it is already open: an ``iree.runtime.HalDevice``.

    Args:
        uri: The name of a driver (``"local-sync"``, ``"local-task"``, ``"cuda"`` …), optionally with a device: ``"cuda://1"``.
        threads: The number of threads of ``local-task``; by default one per CPU that this process may use.

    Raises:
        ExecutionError: The driver or the device does not exist.
    """
    driver = uri.partition("://")[0]
    count = (threads or usable_cpus()) if driver == "local-task" else 0
    opened = _opened.get((uri, count))
    return opened if opened is not None else holding(_lock, _open_once, uri, driver, count)


def _open_once(uri: str, driver: str, threads: int) -> Any:
    if (uri, threads) not in _opened:
        _opened[uri, threads] = _open(uri, driver, threads)
    return _opened[uri, threads]


def driver_flags(driver: str, threads: int | None = None) -> tuple[str, ...]:
    """Return the runtime's flags for a driver.

    For `local-task` they set the number of threads, by default one per CPU that this process may use. Without a count, IREE
    binds one thread to each core. This thread then waits whenever another process uses the core.

    For `vulkan` they disable recorded command buffers, which use the buffers of an earlier call: quirk `replayed-buffers`.
    """
    if driver == "vulkan":
        return ("--vulkan_cached_bda_replay_instances=0",)
    if driver != "local-task":
        return ()
    count = threads or usable_cpus()
    return f"--task_topology_group_count={count}", f"--task_worker_stack_size={_WORKER_STACK_BYTES}"


def devices() -> list[DeviceInfo]:
    """Return every device that IREE's runtime finds, and a reason for each driver without a device. Never raises."""
    try:
        from iree.runtime import HalDriver

        drivers = HalDriver.query()
    except Exception as error:
        return [DeviceInfo("iree", "", "", False, f"IREE's runtime cannot be imported: {error}")]
    infos: list[DeviceInfo] = []
    for driver in drivers:
        try:
            entries = _create_driver(driver).query_available_devices()
        except Exception as error:
            infos.append(DeviceInfo(driver, driver, "", False, _reason(driver, error)))
            continue
        if not entries:
            infos.append(DeviceInfo(driver, driver, "", False, "the driver finds no device"))
        infos += [_probe(driver, entry) for entry in entries]
    return infos


def check_features(driver: str, needed: Sequence[str]) -> None:
    """Check that the first device of a driver has features that are optional in Vulkan, by their names there.

    Raises:
        ExecutionError: The device lacks some of them, or there is no device.
    """
    try:
        opened = _create_driver(driver)
        entries = opened.query_available_devices()
        description = opened.dump_device_info(entries[0]["device_id"]) if entries else None
    except Exception as error:
        raise ExecutionError(f"cannot open the device {driver!r}: {_reason(driver, error)}") from error
    if description is None:
        raise ExecutionError(f"cannot open the device {driver!r}: the driver finds no device")
    lacking = [name for name in needed if name not in _features(description)]
    if lacking:
        raise ExecutionError(
            f"the device {entries[0].get('name', '')!r} lacks {' and '.join(lacking)}, which programs use"
        )


def _features(description: str) -> list[str]:
    """Return the features of the first Vulkan device: those in the runtime's description, and others."""
    reported = re.findall(r"\b(storageBuffer\w+|shader\w+|cooperativeMatrix)=yes", description)
    return [*reported, *sorted(core_features())]


def abandon_devices() -> None:
    """In a forked child: drop all devices without closing them. Closing would wait for their threads, which do not exist."""
    for opened in _opened.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened))
    _opened.clear()


def _probe(driver: str, entry: dict[str, Any]) -> DeviceInfo:
    path, name = entry.get("path"), entry.get("name", "")
    uri = f"{driver}://{path}" if path else driver
    if driver in LOCAL_DRIVERS:
        return DeviceInfo(driver, uri, f"CPU, {host_level() or machine()}", True)
    try:
        created = _create_driver(driver)
        created.create_device(entry)
        features = tuple(_features(created.dump_device_info(entry["device_id"]))) if driver == "vulkan" else ()
    except Exception as error:
        return DeviceInfo(driver, uri, name, False, _reason(driver, error))
    return DeviceInfo(driver, uri, name, True, features=features)


def short_reason(error: BaseException) -> str:
    """Return the message of an IREE exception without the C source line and the call stack."""
    text = re.sub(r"\S+\.c:\d+: ", "", str(error))
    return text.split("; while ")[0].split("\n")[0].strip(" :")


def _open(uri: str, driver: str, threads: int) -> Any:
    import_package("iree.runtime", "running programs")
    configure_allocator()
    from iree.runtime import _binding

    drivers = _binding.HalDriver.query()
    if driver not in drivers:
        raise ExecutionError(f"IREE's runtime has no driver {driver!r}", hint=f"it has {', '.join(sorted(drivers))}")
    if flags := driver_flags(driver, threads):
        _binding.parse_flags(*flags)
    try:
        opened = _create_driver(driver)
        if "://" in uri:
            return opened.create_device_by_uri(uri)
        return opened.create_default_device(allocators=pools() if driver in LOCAL_DRIVERS else None)
    except Exception as error:
        raise ExecutionError(f"cannot open the device {uri!r}: {_reason(driver, error)}") from error


def _create_driver(driver: str) -> Any:
    from iree.runtime import _binding

    # A driver reads its flags when it is created, so a cached driver would keep the flags of the first device.
    create = getattr(_binding, "create_hal_driver", _binding.get_cached_hal_driver)
    return create(driver)


def _reason(driver: str, error: BaseException) -> str:
    reason = short_reason(error)
    missing = _REQUIRED_SOFTWARE.get(driver)
    if missing and ("NOT_FOUND" in reason or "UNAVAILABLE" in reason):
        return f"{missing} was not found ({reason})"
    return reason
