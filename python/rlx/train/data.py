"""Training data of a module: arrays, or iterables of batches, as batches of named arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import chain, count, islice
from typing import Any

import numpy as np

from rlx.ir.shape import Shape
from rlx.support.errors import Error
from rlx.support.guards import is_sequence
from rlx.support.short import short_repr
from rlx.train.batch_layout import FORMS, Batch, BatchLayout, SourcedBatch, layout_of
from rlx.train.loop import epoch_of, is_function, num_batches


class ArrayData:
    """Batches of arrays: in order, or newly shuffled in each epoch.

    Args:
        arrays: The arrays by name, with one number of samples.
        what: The argument that the arrays come from, for messages: `data`.
        chosen: The positions of the samples to use, in this order; all samples by default.
        batch_size: The number of samples of a batch. The last batch of an epoch may be smaller.
        shuffle: Whether each epoch has another order, which depends on `seed` and the number of the epoch alone.
        seed: The seed.
        drop_last: Whether a smaller last batch is left out.
        steps_per_epoch: The number of batches of an epoch, if it is not one pass over the samples. The next epoch continues the
            pass, and a pass that ends is followed by another one.
    """

    def __init__(
        self,
        arrays: Batch,
        batch_size: int,
        *,
        what: str = "data",
        chosen: np.ndarray | None = None,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        steps_per_epoch: int | None = None,
    ):
        self.arrays, self.seed, self.shuffle, self._limit = arrays, seed, shuffle, steps_per_epoch
        self.what, self.chosen = what, chosen
        self.samples = len(next(iter(arrays.values()))) if chosen is None else len(chosen)
        self.batch_size = min(batch_size, self.samples)
        self.used = self.samples // self.batch_size * self.batch_size if drop_last else self.samples

    @property
    def _length(self) -> int:
        """The number of batches of a pass."""
        return -(-self.used // self.batch_size)

    def __len__(self) -> int:
        return self._length if self._limit is None else self._limit

    def __call__(self, epoch: int) -> Iterator[Batch]:
        """Return the batches of an epoch."""
        if self._limit is None:
            return self._pass(epoch)
        number, skipped = divmod(epoch * self._limit, self._length)
        passes = chain.from_iterable(self._pass(n) for n in count(number))
        return islice(passes, skipped, skipped + self._limit)

    def _pass(self, epoch: int) -> Iterator[Batch]:
        """Yield all batches once."""
        order = np.random.default_rng([self.seed, epoch]).permutation(self.samples) if self.shuffle else None
        if self.chosen is not None:
            order = self.chosen if order is None else self.chosen[order]
        for start in range(0, self.used, self.batch_size):
            end = min(start + self.batch_size, self.used)
            places: Any = slice(start, end) if order is None else order[start:end]
            samples = np.arange(start, end) if order is None else places
            yield SourcedBatch({name: array[places] for name, array in self.arrays.items()}, self.what, samples)

    def first(self) -> Batch:
        """Return the first batch."""
        return next(self(0))


class IterableData:
    """Batches of an iterable, an iterator, or a function that returns the batches of an epoch.

    Args:
        source: The batches.
        model: The module, whose `forward` names the inputs.
        what: The argument, for messages: `data`.
        steps_per_epoch: The number of batches of an epoch. The next epoch then continues an iterator or an iterable. An
            iterable that ends is read again.

    Attributes:
        layout: The names of the arrays.
        batch_size: The number of samples of the first batch.
        is_iterator: Whether the source can be read only once.
    """

    def __init__(self, source: Any, model: Any, what: str, steps_per_epoch: int | None = None):
        self._source, self._what, self._limit = source, what, steps_per_epoch
        self._is_function = is_function(source)
        started = None if self._is_function else iter(epoch_of(source, 0, what))
        self.is_iterator = started is source
        self._open: Iterator[Any] | None = None  # batches that the next epoch continues
        self._read = 0  # the batches that an iterator has returned
        iterator = started if started is not None else iter(epoch_of(source, 0, what))
        element = next(iterator, None)
        if element is None:
            raise Error(f"{what} is empty: it has no batch", hint=f"give {FORMS}")
        self._begun: Iterator[Any] | None = chain([element], iterator)
        self.layout = layout_of(model, element, f"the first batch of {what}")
        self._first = self.layout.batch(element, f"the first batch of {what}")
        self.batch_size = len(next(iter(self._first.values())))

    def __len__(self) -> int:
        """Return the number of batches of an epoch.

        Raises:
            TypeError: It is not known.
        """
        if self._limit is not None:
            return self._limit
        if isinstance(self._source, Sized):
            return len(self._source)
        raise TypeError("the number of batches is not known")

    def first(self) -> Batch:
        """Return the first batch. It is also the first of the first epoch."""
        return self._first

    def __call__(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch.

        Raises:
            Error: There are fewer batches than `steps_per_epoch`, an iterator has ended, or a batch differs from the first one
                in more than the number of samples.
        """
        limit, number = self._limit, 0
        for element in islice(self._iterator(epoch), limit):
            number += 1
            self._read += 1
            what = f"batch {number} of {self._what}"
            yield SourcedBatch(self._checked(self.layout.batch(element, what), number), what)
        if limit is not None and number < limit:
            self._refuse_short(epoch, number, limit)

    def _refuse_short(self, epoch: int, number: int, limit: int) -> None:
        if self.is_iterator:
            raise Error(
                f"{self._what} is an iterator, which ended after {self._read} batches: epoch {epoch + 1} has {number} of "
                f"{limit} batches (steps_per_epoch={limit})",
                hint="steps_per_epoch times epochs batches are needed: make the iterator longer or steps_per_epoch smaller, "
                "or give data that can be read again, such as a list or a DataLoader",
            )
        raise Error(
            f"the function of {self._what} returned {number} batches for epoch {epoch + 1}; expected {limit} "
            f"(steps_per_epoch={limit})",
            hint="without steps_per_epoch, an epoch has all batches that the function returns",
        )

    def _iterator(self, epoch: int) -> Iterator[Any]:
        begun, self._begun = self._begun, None
        if self.is_iterator and self._limit is None and begun is None:
            raise Error(
                f"epoch {epoch + 1} has no batch: {self._what} is an iterator, which ends for good",
                hint="give a list, a DataLoader, or a function that returns the batches of an epoch; "
                "or steps_per_epoch=, to take that number of batches of one iterator in each epoch",
            )
        if self.is_iterator or (self._limit is not None and not self._is_function):
            if self._open is None:
                assert begun is not None
                self._open = begun if self.is_iterator else self._passes(begun, epoch * (self._limit or 0))
            return self._open
        if begun is not None and (epoch == 0 or not self._is_function):
            return begun
        return iter(epoch_of(self._source, epoch, self._what))

    def _passes(self, begun: Iterator[Any], skipped: int) -> Iterator[Any]:
        """Yield the batches of an iterable, which is read again at its end, without the first `skipped` ones.

        A training that is resumed skips the batches of the earlier epochs.
        """
        length = num_batches(self._source)
        if length:  # whole passes need not be read
            skipped %= length

        def elements() -> Iterator[Any]:
            iterator = begun
            while True:
                is_empty = True
                for element in iterator:
                    is_empty = False
                    yield element
                if is_empty:
                    raise Error(
                        f"{self._what} has no batch when it is read again",
                        hint="its __iter__ must return a new iterator in each call",
                    )
                iterator = iter(epoch_of(self._source, 0, self._what))

        return islice(elements(), skipped, None)

    def _checked(self, batch: Batch, number: int) -> Batch:
        for name, array in batch.items():
            first = self._first[name]
            if array.shape[1:] != first.shape[1:] or array.dtype != first.dtype:
                shown = [Shape(("batch", *a.shape[1:]), a.dtype) for a in (array, first)]
                raise Error(
                    f"{name} of batch {number} of {self._what} is {shown[0]}, and that of the first batch {shown[1]}",
                    hint="only the number of samples may change: pad the others to one size",
                )
        return batch


Data = ArrayData | IterableData


def data_of(given: Any, model: Any, what: str, batch_size: int, **options: Any) -> tuple[Data, BatchLayout]:
    """Return the batches of data in any form, and their layout.

    Args:
        given: The data: see `fit`.
        model: The module.
        what: The argument, for messages.
        batch_size: The number of samples of a batch, for arrays.
        options: Options of `ArrayData`. Iterables use only `steps_per_epoch`.

    Raises:
        Error: The data is empty or has another form.
    """
    if isinstance(given, (tuple, Mapping)):
        if isinstance(given, tuple) and not given:
            raise Error(f"{what} is empty", hint=f"give {FORMS}")
        layout = layout_of(model, given, what)
        return ArrayData(layout.batch(given, what), batch_size, what=what, **options), layout
    if hasattr(given, "__array__") and not isinstance(given, Iterator):
        raise Error(f"{what} is one array; expected inputs and targets", hint=f"give {FORMS}")
    if is_sequence(given) and len(given) == 2 and all(hasattr(part, "__array__") for part in given):
        raise Error(f"{what} is a list of two arrays; expected a tuple (x, y), or a list of batches", hint="(x, y)")
    if not isinstance(given, Iterable) and not callable(given):
        if hasattr(given, "__getitem__") and isinstance(given, Sized):
            hint = f"torch.utils.data.DataLoader({what}, batch_size={batch_size})"
            raise Error(f"{what} is a {type(given).__name__} of samples; expected batches", hint=hint)
        raise Error(f"{what} is {type(given).__name__}; expected {FORMS}")
    if isinstance(given, (str, bytes)):
        raise Error(f"{what} is {short_repr(given)}; expected {FORMS}")
    data = IterableData(given, model, what, options.get("steps_per_epoch"))
    return data, data.layout


def split(data: ArrayData, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the samples for training and of those for validation: a random share, in ascending order.

    Raises:
        Error: One of them would be empty.
    """
    count = round(share * data.samples)
    if not 0 < count < data.samples:
        raise Error(f"validation={share} of {data.samples} samples leaves {count} for validation; both need one")
    order = np.random.default_rng([seed, 2**32 - 1]).permutation(data.samples)
    return np.sort(order[count:]), np.sort(order[:count])
