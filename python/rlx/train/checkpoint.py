"""Checkpoints: one safetensors file, complete or not there at all."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from rlx.ir.errors import Error
from rlx.ir.files import file_name
from rlx.ir.signature import Argument
from rlx.weights import safetensors

_KIND = {"format": "rlx.train", "version": "1"}
# How many tensors that do not fit a message names.
_NAMED = 10


def write(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray]) -> None:
    """Write tensors to a file that replaces one of the same name when it is complete and on the disk.

    Raises:
        Error: It cannot be written.
    """
    safetensors.write(path, tensors, _KIND)


def read(path: str | os.PathLike[str], expected: Mapping[str, Argument]) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint.

    Args:
        path: The file.
        expected: What has to be in it, by name.

    Raises:
        Error: The file is missing or damaged, or does not fit; it names every tensor that does not.
    """
    name = file_name(path)
    tensors = safetensors.read(name, "the checkpoint ")
    problems = [f"'{key}' ({a.shape}) is missing" for key, a in expected.items() if key not in tensors]
    problems += [f"'{key}' has no place here" for key in sorted(tensors.keys() - expected.keys())]
    for key, argument in expected.items():
        weight = tensors.get(key)
        if weight is None:
            continue
        # Frozen parameters may have symbols for sizes.
        wanted = [d if type(d) is int else None for d in argument.shape.dims]
        sizes = weight.shape
        fits = len(wanted) == len(sizes) and all(w in (None, s) for w, s in zip(wanted, sizes, strict=True))
        if not fits or weight.dtype != argument.shape.dtype.numpy:
            problems.append(f"'{key}' is {weight.dtype}{list(sizes)}, not {argument.shape}")
    if problems:
        more = f"\n  and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise Error(
            f"the checkpoint {name} does not fit:\n  " + "\n  ".join(problems[:_NAMED]) + more,
            hint="it has to be of the same graph, with the same kind of optimiser and the same precision and accumulate",
        )
    # Copies: the next checkpoint may take the place of this file, which not every system allows while it is mapped.
    return {key: np.array(weight) for key, weight in tensors.items()}
