"""The names of targets and devices, for arguments of commands: those of all registered back ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator


class _LazyNames(Collection[str]):
    """Names that are looked up when they are printed, because the lookup imports the back ends of other packages.

    Every name is accepted here: the later lookup of the target raises a better error than argparse.
    """

    def __init__(self, look_up: Callable[[], list[str]]):
        self._look_up = look_up

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._look_up())

    def __len__(self) -> int:
        return len(self._look_up())


def _targets() -> list[str]:
    from rlx.targets.registry import target_names

    return target_names()


def _devices() -> list[str]:
    from rlx.targets.registry import device_names

    return device_names()


# Both are used as `choices=` and in the `help=` of an argument.
TARGETS, DEVICES = _LazyNames(_targets), _LazyNames(_devices)
TARGET_HELP = "%(choices)s (default: %(default)s)"
