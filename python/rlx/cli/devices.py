"""List the devices that programs can run on, and for each driver without devices the reason."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rlx.cli.streams import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlx.targets.protocol import DeviceInfo
    from rlx.targets.registry import Registered

_FIELDS = ("driver", "uri", "name", "available", "reason", "features")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print a list of objects")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.report.text import table

    infos = devices()
    if arguments.json:
        say(json.dumps([{name: getattr(d, name) for name in _FIELDS} for d in infos], indent=1))
        return 0
    rows = [
        [
            d.driver,
            d.uri,
            "yes" if d.available else "no",
            _described(d),
        ]
        for d in infos
    ]
    say("\n".join(table(rows, ["driver", "device", "usable", "name, or what is missing"], long={3})))
    return 0


def _described(device: DeviceInfo) -> str:
    if not device.available:
        return f"{device.name} {device.reason}".strip()
    return f"{device.name}; {', '.join(device.features)}" if device.features else device.name


def devices() -> list[DeviceInfo]:
    """Return the devices of all back ends."""
    from rlx.targets.registry import backends

    return [device for backend in backends() for device in _devices_of(backend)]


def _devices_of(backend: Registered) -> Sequence[DeviceInfo]:
    from rlx.targets.protocol import DeviceInfo

    if backend.runtime is None:
        return ()
    try:
        return backend.runtime.devices()
    except Exception as problem:  # a back end of another package may raise anything
        return [DeviceInfo(backend.name, backend.name, "", False, f"{backend}: {type(problem).__name__}: {problem}")]
