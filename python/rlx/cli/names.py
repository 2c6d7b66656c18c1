"""The names of targets and devices, for arguments of commands: those of all registered back ends; and levels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator


class _LazyNames(Collection[str]):
    """Names that are looked up when they are printed: that imports the back ends of other packages.

    Any name is taken for one of them: what looks the target up has an error that says more than argparse's.
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


# Both go with `choices=` and `help=` of an argument.
TARGETS, DEVICES = _LazyNames(_targets), _LazyNames(_devices)
# The levels of optimisation, and that of every day: those of `rlx.passes.levels`, which takes long to import.
LEVELS, DEFAULT_LEVEL = (0, 1, 2, 3), 2
TARGET_HELP = "%(choices)s (default: %(default)s)"
