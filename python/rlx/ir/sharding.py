"""Device meshes and shardings: the mesh axes that each dimension of a tensor is sharded over."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from rlx.ir.calls import Answered
from rlx.ir.shape import Shape
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_integer, is_iterable, is_list, is_mapping, is_tuple
from rlx.support.packages import import_package
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion

# For each dimension, the axes that it is sharded over, outermost first; empty for a replicated dimension.
Sharding = tuple[tuple[str, ...], ...]
MESH, SHARDING = "rlx.mesh", "rlx.sharding"
_AXIS = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_WHOLE, _BETWEEN, _JOINED = "_", ", ", "+"
_MOST_DEVICES = 1 << 31


class Mesh(Answered):
    """A grid of devices with named axes.

    Args:
        axes: The number of devices along each axis, by name, outermost first: `{"data": 4, "model": 2}`.

    Attributes:
        axes: The axes, as a mapping of ints. Do not change it.

    Raises:
        Error: A name is not an identifier, or a number is not positive.
    """

    def __init__(self, axes: Mapping[str, int]):
        given: Any = axes  # users may pass values that the annotation does not allow
        if not is_mapping(axes) or not axes:
            raise Error(f'a mesh has axes by name, such as rlx.Mesh({{"data": 4, "model": 2}}), got {short_repr(axes)}')
        self.axes: dict[str, int] = {}
        for name, size in given.items():
            if not isinstance(name, str) or not _AXIS.fullmatch(name):
                raise Error(
                    f"a mesh's axis has a name of letters, digits and _.-, such as 'data', got {short_repr(name)}"
                )
            if not is_integer(size) or size < 1:
                raise Error(f"axis '{name}' of a mesh has a positive number of devices, got {short_repr(size)}")
            self.axes[name] = int(size)
        if self.size > _MOST_DEVICES:
            raise Error(f"a mesh of {self.size} devices is larger than {_MOST_DEVICES}")

    @property
    def size(self) -> int:
        """The number of devices."""
        return prod(self.axes.values())

    def __str__(self) -> str:
        return _BETWEEN.join(f"{name}={size}" for name, size in self.axes.items())

    def __repr__(self) -> str:
        return f"rlx.Mesh({self.axes})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and list(self.axes.items()) == list(other.axes.items())

    def __hash__(self) -> int:
        return hash(str(self))

    def to_jax(self, devices: Sequence[Any] | None = None) -> Any:
        """Return the mesh as a `jax.sharding.Mesh`.

        Args:
            devices: The same number of JAX devices, in the order of the mesh; by default the first ones of all
                processes.

        Raises:
            Error: There are fewer devices than the mesh has, or JAX is not installed.
        """
        jax, sharding = import_package("jax", "Mesh.to_jax"), import_package("jax.sharding", "Mesh.to_jax")
        if devices is not None and not is_iterable(devices):
            raise Error(f"the devices of a mesh are a list of devices of JAX, got {short_repr(devices)}")
        given = list(jax.devices() if devices is None else devices)
        if len(given) < self.size or (devices is not None and len(given) != self.size):
            raise Error(
                f"the mesh {self} is of {self.size} devices, and there are {len(given)}",
                hint="on one CPU, XLA_FLAGS=--xla_force_host_platform_device_count=8 makes eight of it",
            )
        grid = import_package("numpy", "Mesh.to_jax").array(given[: self.size]).reshape(tuple(self.axes.values()))
        return sharding.Mesh(grid, tuple(self.axes), axis_types=(sharding.AxisType.Auto,) * len(self.axes))


@lru_cache(256)
def mesh_from_text(text: str) -> Mesh:
    """Return the mesh of an attribute `rlx.mesh`: `"data=4, model=2"`.

    Raises:
        ShapeError: The text is not a mesh.
    """
    pairs = [entry.strip().partition("=") for entry in text.split(",")]
    sizes = [size for _, _, size in pairs]
    are_sizes = all(size.isascii() and size.isdecimal() and len(size) <= 10 for size in sizes)
    if not are_sizes or len({n for n, _, _ in pairs}) < len(pairs):
        raise ShapeError(f'\'{MESH}\' is axes with their sizes, such as "data=4, model=2", not "{text:.80}"')
    try:
        return Mesh({name: int(size) for name, _, size in pairs})
    except Error as problem:
        raise ShapeError(f"'{MESH}': {problem.message}") from None


def sharding_of(value: Any, rank: int) -> Sharding:
    """Return the sharding in a user's notation: for each dimension an axis, None, or a tuple of axes; None for the rest.

    Raises:
        ShapeError: The form is wrong, there are more entries than dimensions, or an axis occurs twice.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ShapeError(
            f'a sharding is a tuple such as ("data", None), one entry for each dimension, got {short_repr(value)}'
        )
    entries: list[tuple[str, ...]] = []
    given: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
    for entry in given:
        names: Any = (entry,) if isinstance(entry, str) else () if entry is None else entry
        if (not is_tuple(names) and not is_list(names)) or not all(isinstance(n, str) for n in names):
            raise ShapeError(
                f"an entry of a sharding is the name of an axis, None, or a tuple of names, got {short_repr(entry)}"
            )
        entries.append(tuple(names))
    if len(entries) > rank:
        raise ShapeError(f"a sharding of {len(entries)} dimensions for a tensor of {rank}")
    names = [name for entry in entries for name in entry]
    for i, name in enumerate(names):
        if not _AXIS.fullmatch(name):
            raise ShapeError(f"{short_repr(name)} is no name of an axis of a mesh")
        if name in names[:i]:
            raise ShapeError(f"axis '{name}' is used twice in one sharding")
    return (*entries, *((),) * (rank - len(entries)))


def sharding_text(sharding: Sharding) -> str:
    """Return the text of a sharding: `"data, _"`, `"data+model, _"`; `""` for a scalar."""
    return _BETWEEN.join(_JOINED.join(entry) or _WHOLE for entry in sharding)


@lru_cache(4096)
def sharding_from_text(text: str, rank: int) -> Sharding:
    """Return the sharding of an attribute: `"data, _"`.

    Raises:
        ShapeError: The text is not a sharding of a tensor of this rank.
    """
    entries = [entry.strip() for entry in text.split(",")] if text.strip() else []
    sharding = sharding_of([() if e == _WHOLE else tuple(e.split(_JOINED)) for e in entries], rank)
    if len(entries) != rank:
        raise ShapeError(f'"{text:.80}" is a sharding of {len(entries)} dimensions, for a tensor of {rank}')
    return sharding


def check_sharding(sharding: Sharding, shape: Shape, mesh: Mesh | None) -> None:
    """Check that a sharding fits a mesh: its axes exist, and they divide the known sizes.

    Raises:
        ShapeError: The sharding does not fit.
    """
    names = [name for entry in sharding for name in entry]
    if mesh is None:
        raise ShapeError(
            f"a sharding ({sharding_text(sharding)}) is of a mesh, and the graph has none",
            hint='rlx.Graph(name, mesh=rlx.Mesh({"data": 4, "model": 2})); in text, the module attribute rlx.mesh',
        )
    for name in names:
        if name not in mesh.axes:
            raise ShapeError(f"the mesh {mesh} has no axis '{name}'{suggestion(name, mesh.axes)}")
    for i, (entry, size) in enumerate(zip(sharding, shape.dims, strict=True)):
        parts = prod(mesh.axes[name] for name in entry)
        if type(size) is int and size % parts:
            raise ShapeError(
                f"dimension {i} of {shape} is spread over {_JOINED.join(entry)}, {parts} devices, which do not divide {size}"
            )


def with_axis(sharding: Sharding | None, axis: int) -> Sharding | None:
    """Return the sharding of a tensor with an additional, replicated dimension."""
    return None if sharding is None else (*sharding[:axis], (), *sharding[axis:])


__all__ = [
    "MESH",
    "SHARDING",
    "Mesh",
    "Sharding",
    "check_sharding",
    "mesh_from_text",
    "sharding_from_text",
    "sharding_of",
    "sharding_text",
    "with_axis",
]
