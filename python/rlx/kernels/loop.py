"""`KernelLoop`: a loop or branch of a kernel, which runs when Python iterates over it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar

from rlx.kernels.errors import kernel_error
from rlx.support.caller import caller_place

Item = TypeVar("Item")
Owner = TypeVar("Owner")
Arguments = ParamSpec("Arguments")


class KernelLoop(Generic[Item]):
    """The iterator of a loop or branch. It has no effect before Python iterates over it.

    Args:
        name: The method of `Kernel` that returns it.
        pending: The loops that Python has not iterated over yet, by `id`.
        items: The iterator.
    """

    def __init__(self, name: str, pending: dict[int, KernelLoop[Any]], items: Iterator[Item]) -> None:
        self.name, self._pending, self._items, self.place = name, pending, items, caller_place()
        pending[id(self)] = self

    def __iter__(self) -> Iterator[Item]:
        self._pending.pop(id(self), None)
        return self._items

    def __enter__(self) -> NoReturn:
        raise kernel_error(f"{self.name} is a loop, not a context", f"`for … in {self.name}(…):` precedes its body")

    def __exit__(self, *_: object) -> None: ...

    def __bool__(self) -> NoReturn:
        raise kernel_error(f"{self.name} is a loop, not a condition", f"`for … in {self.name}(…):` precedes its body")


def check_all_run(pending: dict[int, KernelLoop[Any]]) -> None:
    """Check that Python has iterated over all loops and branches.

    Raises:
        ShapeError: There is another one. The error has its line.
    """
    for loop in pending.values():
        hint = f"`for … in {loop.name}(…):` precedes its body"
        raise kernel_error(f"{loop.name} has no effect, because nothing iterates over it", hint, loop.place)


def kernel_loop(
    method: Callable[Concatenate[Owner, Arguments], Iterator[Item]],
) -> Callable[Concatenate[Owner, Arguments], Iterable[Item]]:
    """Make a generator, a method of `Kernel`, return a `KernelLoop`."""

    @functools.wraps(method)
    def method_of_loop(self: Any, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Iterable[Item]:
        return KernelLoop(f"k.{method.__name__}", self.pending_loops, method(self, *args, **kwargs))

    return method_of_loop
