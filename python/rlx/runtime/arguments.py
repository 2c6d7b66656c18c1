"""Validation of users' arguments for everything that runs programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from rlx.ir.interface import Argument, argument_array
from rlx.ir.parameters import named_values
from rlx.support.errors import Error
from rlx.support.short import join_names, short_repr
from rlx.support.suggestions import suggestion
from rlx.weights import Weights, open_parameters
from rlx.weights.arrays import keep

_MOST_SECONDS = 1e9
_MOST_THREADS = 4096  # more than any machine has cores; each thread has its own stack


def checked_threads(threads: int | None) -> int | None:
    """Return the number of threads a program may use; None is one per core.

    Raises:
        Error: It is not an integer from 1 to 4096.
    """
    if threads is None:
        return None
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= _MOST_THREADS:
        raise Error(f"threads must be an integer from 1 to {_MOST_THREADS}, got {short_repr(threads)}")
    return threads


def checked_seconds(name: str, seconds: Any) -> float:
    """Return a positive number of seconds.

    Raises:
        Error: It is something else.
    """
    if isinstance(seconds, (bool, np.bool_)) or not isinstance(seconds, Real) or not 0 < float(seconds) < _MOST_SECONDS:
        raise Error(f"{name} must be a positive number of seconds, got {seconds!r:.60}")
    return float(seconds)


def check_flags(**flags: object) -> None:
    """Check that some arguments, given by name, are True or False.

    Raises:
        Error: One is something else, such as a path.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise Error(f"{name} is True or False, not {short_repr(value)}")


def given_params(known: Mapping[str, Argument], params: Any, copy: Any, cast: Any) -> dict[str, np.ndarray]:
    """Return a user's weights, checked, as arrays that a program may keep.

    Args:
        known: The existing parameters, by name.
        params: Arrays by name, `Weights`, or a path: see `Program.set_params`.
        copy: False if the caller promises not to change the arrays.
        cast: Whether arrays of other dtypes are converted.

    Raises:
        Error: A value does not fit, or a parameter does not exist.
    """
    params = open_parameters(params)
    check_flags(copy=copy, cast=cast)
    if isinstance(params, Weights):
        params, copy = params.values_of(known.values(), cast=cast), False
    values = named_values(params, known)
    arrays = {name: argument_array(known[name], value, cast=cast) for name, value in values.items()}
    return {name: keep(array, copy) for name, array in arrays.items()}


def unknown_name(kind: str, name: Any, names: Collection[str]) -> Error:
    """Return the error for a state or entry point that the program does not have."""
    return Error(f"there is no {kind} {short_repr(name)}{suggestion(name, names)}; the program has {join_names(names)}")


def unset_params(missing: Sequence[Argument]) -> Error:
    """Return the error for parameters without values."""
    described = ", ".join(f"'{a.name}' ({a.shape})" for a in missing[:10])
    return Error(f"{len(missing)} parameters are not set: {described}", hint="call set_param or set_params")
