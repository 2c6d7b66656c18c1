"""Cached properties, without and with a lock for each object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from rlx.support.locks import holding, make_lock

T_co = TypeVar("T_co", covariant=True)


class cached_property(Generic[T_co]):
    """A property that is computed once per object and then stored in the object's `__dict__`, also for frozen dataclasses.

    `functools.cached_property` of Python 3.11 holds one lock per class while it computes. Threads that work on
    different objects wait for each other, and a process that is forked meanwhile inherits a lock that is never
    released. This class holds no lock: two threads may compute the value at the same time, and both get the value that
    was stored first.
    """

    def __init__(self, compute: Callable[[Any], T_co]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T_co]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T_co: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> cached_property[T_co] | T_co:
        # Python calls this only while the object's `__dict__` has no entry of this name.
        if instance is None:
            return self
        return self._stored(instance)

    def _stored(self, instance: object) -> T_co:
        """Compute the value and store it, if there is none."""
        return instance.__dict__.setdefault(self._name, self._compute(instance))


class locked_property(cached_property[T_co]):
    """A property that one thread computes while others wait for it, for values that are expensive.

    Each object has a lock of its own for each of these properties, which is free in a forked process.
    """

    def _stored(self, instance: object) -> T_co:
        lock = instance.__dict__.setdefault(f"lock of {self._name}", make_lock())
        return holding(lock, self._only_once, instance)

    def _only_once(self, instance: object) -> T_co:
        if self._name not in instance.__dict__:
            instance.__dict__[self._name] = self._compute(instance)
        return instance.__dict__[self._name]
