"""Checkpoints: a single safetensors file, which is complete or does not exist."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from rlx.ir.interface import Argument
from rlx.support.errors import Error
from rlx.support.files import file_name
from rlx.train.optimizers import Optimizer
from rlx.train.program import AVERAGE
from rlx.weights import safetensors

_KIND = {"format": "rlx.train", "version": "1"}
# The largest number of mismatched tensors in a message.
_NAMED = 10


_SUMS = "gradient_sum"  # the prefix of sums of gradients, which are not states of an optimiser

# The prefix of the current value of a parameter in a file that has its moving average under its name.
CURRENT = "train/current/"


def write(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], averaged: Iterable[str] = ()) -> None:
    """Write tensors to a file. It replaces a file of the same name once it is complete and on the disk.

    Args:
        path: The file.
        tensors: The parameters and states by name.
        averaged: The parameters that have moving averages. The file has the averages under the names of the parameters,
            because programs that use the file as weights must compute with these, and the parameters themselves as
            `train/current/<name>`.

    Raises:
        Error: The file cannot be written.
    """
    stored = dict(tensors)
    for name in averaged:
        current, average = tensors[name], tensors[AVERAGE + name]
        stored[name], stored[CURRENT + name] = average.astype(current.dtype), current
        if average.dtype == current.dtype:  # else resuming needs the wider average as well
            del stored[AVERAGE + name]
    safetensors.write(path, stored, _KIND)


def _with_current_values(tensors: Mapping[str, Any], averaged: Iterable[str]) -> dict[str, Any]:
    """Return the tensors of a file by the names of parameters and states: the reverse of `write`."""
    result = dict(tensors)
    for name in averaged:
        if CURRENT + name in tensors:  # older files have the current values under the names of the parameters
            if name in tensors:
                result.setdefault(AVERAGE + name, tensors[name])
            result[name] = result.pop(CURRENT + name)
    return result


# The position of the training: the steps of `fit`, the epoch, and the batches of the epoch. The smallest validation
# loss, and the number of validations since then. The history as the bytes of JSON.
POSITION, VALIDATION, LOG = "train/position", "train/validation", "train/log"
_OF_FIT = {POSITION: ((3,), np.dtype(np.int64)), VALIDATION: ((2,), np.dtype(np.float64))}


def log_tensor(log: Mapping[str, Any]) -> np.ndarray:
    """Return the tensor of a history."""
    return np.frombuffer(json.dumps(log).encode(), np.uint8)


def log_of(tensor: np.ndarray | None) -> dict[str, Any]:
    """Return the history of a tensor; empty if it is absent or not a history."""
    if tensor is None:
        return {}
    try:
        log = json.loads(tensor.tobytes())
    except ValueError:
        return {}
    return log if isinstance(log, dict) else {}


def read(
    path: str | os.PathLike[str], expected: Mapping[str, Argument], optimizer: str, averaged: Iterable[str] = ()
) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint.

    Args:
        path: The file.
        expected: The arguments that it must have tensors for, by name. It may also have those of `fit`.
        optimizer: The name of the optimiser, the prefix of its states.
        averaged: The parameters that have moving averages.

    Raises:
        Error: The file is missing or damaged, or does not fit. The message lists the tensors that do not fit.
    """
    name = file_name(path)
    tensors = _with_current_values(safetensors.read(name, "the checkpoint "), averaged)
    problems = _problems(tensors, expected, optimizer)
    if problems:
        more_problems = f"\n  and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise Error(
            f"the checkpoint {name} does not fit:\n  " + "\n  ".join(problems[:_NAMED]) + more_problems,
            hint="it has to be of the same graph, with the same kind of optimiser and the same precision, accumulate and "
            "ema; to begin with its parameters only, pass the file as params=",
        )
    # Copies: the next checkpoint may replace this file, which some systems forbid while it is mapped.
    return {key: np.array(weight) for key, weight in tensors.items()}


def _problems(tensors: Mapping[str, Any], expected: Mapping[str, Argument], optimizer: str) -> list[str]:
    """Return messages for what does not fit: another optimiser, other shapes and dtypes, then missing and unknown tensors."""
    missing = [key for key in expected if key not in tensors]
    unknown = sorted(tensors.keys() - expected.keys() - {*_OF_FIT, LOG})
    problems = []
    names = {*expected, *tensors}
    ours, theirs = ({k: o for k in keys if (o := _optimizer_of(k, optimizer, names))} for keys in (missing, unknown))
    if (ours or theirs) and not any(_optimizer_of(key, optimizer, names) == optimizer for key in tensors):
        other = next(iter(theirs.values()), None)
        states = f"states of the optimiser '{other}'" if other is not None else "no states of an optimiser"
        kind = f"'{optimizer}'" if ours else f"'{optimizer}' without states"
        problems.append(f"the file has {states}, and this training has the optimiser {kind}")
        missing, unknown = [k for k in missing if k not in ours], [k for k in unknown if k not in theirs]
    for key, (shape, kind) in _OF_FIT.items():
        if key in tensors and (tensors[key].shape, tensors[key].dtype) != (shape, kind):
            problems.append(f"'{key}' must be {kind}{list(shape)}")
        elif key == POSITION and key in tensors and (position := np.asarray(tensors[key])).min() < 0:
            problems.append(f"'{key}' is {position.tolist()}, with a negative number")
    for key, argument in expected.items():
        weight = tensors.get(key)
        if weight is None:
            continue
        # Frozen parameters may have symbolic sizes.
        expected_sizes = [d if type(d) is int else None for d in argument.shape.dims]
        sizes = weight.shape
        sizes_fit = len(expected_sizes) == len(sizes) and all(
            w in (None, s) for w, s in zip(expected_sizes, sizes, strict=True)
        )
        if not sizes_fit or weight.dtype != argument.shape.dtype.numpy:
            problems.append(f"'{key}' is {weight.dtype}{list(sizes)}, not {argument.shape}")
    problems += [f"'{key}' ({expected[key].shape}) is missing" for key in missing]
    return problems + [f"'{key}' has no place here" for key in unknown]


def _optimizer_of(key: str, optimizer: str, names: Collection[str]) -> str | None:
    """Return the optimiser that a state belongs to, by its name `<optimizer>_<state>/<parameter>`; None for other tensors.

    Args:
        key: The name of a tensor.
        optimizer: The optimiser of the training.
        names: The names of all tensors. Those with a slash may be parameters.
    """
    prefix, _, parameter = key.partition("/")
    if parameter not in names or prefix == _SUMS:
        return None
    found = [name for name in (optimizer, *_names(Optimizer)) if prefix.startswith(f"{name}_")]  # may have underscores
    return max(found, key=len) if found else prefix.partition("_")[0] if "_" in prefix else None


def _names(kind: type[Optimizer]) -> list[str]:
    """Return the names of a class of optimisers and of those derived from it."""
    return [kind.name, *(name for derived in kind.__subclasses__() for name in _names(derived))]
