"""The names of the arrays of a batch, and batches of named arrays."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.arrays import as_array, as_numbers
from rlx.support.errors import Error
from rlx.support.guards import is_dict, is_sequence
from rlx.support.short import short_repr

Batch = dict[str, np.ndarray]
# Keys of a mapping that are targets, not inputs of the model.
TARGET_NAMES = ("y", "label", "labels", "target", "targets")
FORMS = (
    "a tuple of arrays (x, y); a dictionary of arrays; or an iterable of such batches, for example a list, a DataLoader "
    "of PyTorch or a function that returns the batches of an epoch"
)


class SourcedBatch(Batch):
    """A batch that knows its place in the data, for messages.

    Attributes:
        what: The data that positions refer to: `data`, `batch 3 of validation`.
        samples: The positions of the samples in that data, `[n]`; None if they are those of the batch.
    """

    def __init__(self, arrays: Batch, what: str, samples: np.ndarray | None = None):
        super().__init__(arrays)
        self.what, self.samples = what, samples


def place_of(batch: Any, other: str) -> tuple[str, np.ndarray | None]:
    """Return the data of a batch, for messages, and the positions of its samples in it.

    Args:
        batch: The batch.
        other: The text for a batch without a place.
    """
    return (batch.what, batch.samples) if isinstance(batch, SourcedBatch) else (other, None)


def position_of(wrong: np.ndarray, samples: np.ndarray | None) -> tuple[tuple[int, ...], list[int]]:
    """Return the index of the first true element in the array of a batch, and its index in the data."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    if samples is None or not index:
        return index, list(index)
    return index, [int(samples[index[0]]), *index[1:]]


def unusual_number(batch: Mapping[str, Any]) -> str | None:
    """Return the first NaN or infinity of a batch with its position in the data, for messages; None if there is none."""
    what, samples = place_of(batch, "this batch")
    for name, value in batch.items():
        array = converted(value, f"{name} of a batch")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            index, place = position_of(~np.isfinite(array), samples)
            return f"'{name}' of {what} has {array[index]} at {place}"
    return None


@dataclass(frozen=True)
class BatchLayout:
    """The names of the arrays of a batch, and their places in the calls of the model and the loss.

    Attributes:
        args: Names of the positional arguments of `forward`.
        kwargs: Names of its keyword arguments.
        target: The name of the targets; a tuple or dictionary of names if there are several; None without targets.
    """

    args: tuple[str, ...]
    kwargs: tuple[str, ...]
    target: Any

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arguments of `forward`."""
        return (*self.args, *self.kwargs)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets."""
        if isinstance(self.target, dict):
            return tuple(self.target.values())
        return self.target if isinstance(self.target, tuple) else () if self.target is None else (self.target,)

    def batch(self, element: Any, what: str) -> Batch:
        """Return the arrays of an element of the data by name.

        Args:
            element: A pair or mapping of the kind that the layout was made from.
            what: The element, for messages: `batch 3`.

        Raises:
            Error: It has another form, is empty, or its arrays have different numbers of samples.
        """
        x, y = _parts(element, what, self) if self.target is not None else (element, None)
        if is_dict(x) and len(x) == len(self.args) == 1:  # one input may have any name
            x = next(iter(x.values()))
        values = _named(x, {name: name for name in self.inputs}, "inputs", what)
        if self.target is not None:
            names = self.target if is_dict(self.target) else {name: name for name in self.targets}
            values |= _named(y, names, "targets", what)
        arrays = {n: converted(v, f"{n} of {what}") for n, v in values.items()}
        for name in self.targets:
            if arrays[name].dtype == np.bool_:  # labels of two classes
                arrays[name] = arrays[name].astype(np.int32)
        return checked(arrays, what)


def layout_of(model: Any, element: Any, what: str, *, target: bool = True) -> BatchLayout:
    """Return the layout of data for a module.

    Args:
        model: The module. The names are those of the parameters of its `forward`.
        element: The data or a batch: a pair of inputs and targets or a mapping; only inputs without `target`.
        what: The element, for messages.
        target: Whether it contains targets.

    Raises:
        Error: The form is wrong, or names do not fit `forward`.
    """
    positional, keyword = _parameters(model)
    x, y = _parts(element, what, None) if target else (element, None)
    if isinstance(x, Mapping) and not x:
        parameters = ", ".join([*positional, *keyword]) or "none"
        raise Error(f"{what} has no inputs", hint=f"the parameters of {type(model).__name__}.forward are {parameters}")
    if is_dict(x):
        names = tuple(map(str, x))
        unknown = [n for n in names if n not in positional and n not in keyword]
        if unknown and len(names) == 1 and positional:  # one input may have any name
            names = positional[:1]
            return BatchLayout(names, (), _target(y, names) if target else None)
        if unknown:
            raise Error(
                f"{what} has '{unknown[0]}', which is not a parameter of {type(model).__name__}.forward",
                hint=f"its parameters are {', '.join([*positional, *keyword]) or 'none'}; targets are named 'y' or 'label'",
            )
        return BatchLayout((), names, _target(y, names) if target else None)
    count = len(_listed(x))
    names = (*positional, *(f"x{i}" for i in range(len(positional), count)))[:count]
    return BatchLayout(names, (), _target(y, names) if target else None)


def _parameters(model: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the positional and of the keyword-only parameters of `forward`."""
    parameters = inspect.signature(model.forward).parameters.values()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return tuple(positional), tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def _target(y: Any, taken: tuple[str, ...]) -> Any:
    def free(name: str) -> str:
        return f"target_{name}" if name in taken else name

    if is_dict(y):
        return {str(key): free(str(key)) for key in y}
    if is_sequence(y) and not _is_numbers(y):
        return tuple(free(f"y{i}") for i in range(len(y)))
    return free("y")


def _parts(element: Any, what: str, layout: BatchLayout | None) -> tuple[Any, Any]:
    """Return the inputs and the targets of an element."""
    if isinstance(element, Mapping):
        if layout is not None and layout.kwargs and set(element) == set(layout.kwargs):
            names: list[Any] = []
        else:
            names = [n for n in element if n in TARGET_NAMES]
        if len(names) != 1:
            problem = "no targets" if not names else f"several targets: {', '.join(names)}"
            raise Error(f"{what} has {problem}; it has {', '.join(map(str, element))}", hint=f"give {FORMS}")
        return {n: v for n, v in element.items() if n != names[0]}, element[names[0]]
    if is_sequence(element) and len(element) == 2:
        return element[0], element[1]
    if is_sequence(element) and len(element) == 3:
        hint = "weigh the samples in a loss function: the weights may be part of the targets, (x, (y, weights))"
        raise Error(f"{what} has 3 entries; expected inputs and targets (x, y)", hint=hint)
    shown = f"{len(element)} entries" if is_sequence(element) else short_repr(element)
    raise Error(f"{what} has {shown}; expected inputs and targets (x, y), or a dictionary", hint=f"data is {FORMS}")


def _named(value: Any, names: Mapping[str, str], kind: str, what: str) -> Batch:
    """Return inputs or targets by their names in the layout.

    Args:
        value: An array, a sequence of arrays in the order of the names, or a dictionary.
        names: The names, by the keys of a dictionary.
        kind: `inputs` or `targets`, for messages.
        what: The element, for messages.

    Raises:
        Error: Keys differ, or there is another number of arrays.
    """
    if is_dict(value):
        arrays = {str(key): array for key, array in value.items()}
        if arrays.keys() != names.keys():
            raise Error(f"{what} has the {kind} {', '.join(arrays)}; expected {', '.join(names)}")
        return {name: arrays[key] for key, name in names.items()}
    listed = _listed(value)
    if len(listed) != len(names):
        raise Error(f"{what} has {len(listed)} {kind}; expected {', '.join(names)}")
    return dict(zip(names.values(), listed, strict=True))


def _listed(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if is_sequence(value) and not _is_numbers(value) else [value]


def _is_numbers(value: Any) -> bool:
    """Whether a list contains numbers, so that it is an array."""
    while is_sequence(value):
        if not value:
            return True
        value = value[0]
    return isinstance(value, (bool, int, float, np.generic))


def converted(value: Any, what: str) -> np.ndarray:
    """Return an array in a dtype that a model computes in: f32 for f64, i32 for i64."""
    array = as_numbers(value, what) if is_sequence(value) else as_array(value, what)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    elif (array.dtype.kind in "iu" and array.dtype.itemsize == 8) or array.dtype == np.uint32:
        limit = np.iinfo(np.int32)
        if array.size and not (limit.min <= int(array.min()) and int(array.max()) <= limit.max):
            raise Error(f"{what} has integers that do not fit i32: {array.min()} to {array.max()}")
        array = array.astype(np.int32)
    if array.dtype.kind not in "biuf" and array.dtype.kind != "V":
        raise Error(f"{what} is an array of {array.dtype}; expected numbers")
    return array


def checked(batch: Batch, what: str) -> Batch:
    """Return a batch whose arrays have the same number of samples, at least one.

    Raises:
        Error: They do not.
    """
    sizes = {name: array.shape[0] if array.ndim else None for name, array in batch.items()}
    (first, size), *others = sizes.items()
    for name, other in ((first, size), *others):
        if other is None:
            raise Error(f"{name} of {what} is a number; expected an array whose first axis is that of the samples")
        if other != size:
            raise Error(f"{what}: {first} has {size} samples, and {name} has {other}")
    if size == 0:
        raise Error(f"{what} is empty: {first} is {list(batch[first].shape)}")
    return batch
