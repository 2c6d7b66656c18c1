"""Checkpoints: one safetensors file, complete or not there at all."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.ir.dtype import dtype
from rlx.ir.errors import Error
from rlx.ir.files import file_name, replacing
from rlx.ir.signature import Argument
from rlx.runtime.weights import read_tensors

_KIND = {"format": "rlx.train", "version": "1"}
# How many tensors that do not fit a message names.
_NAMED = 10


def write(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray]) -> None:
    """Write tensors to a file that replaces one of the same name when it is complete and on the disk.

    The package of the format would write to a temporary file of its own, which nobody removes if the process is killed.

    Raises:
        Error: It cannot be written.
    """
    # Larger elements first, so that all are aligned to their size.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": _KIND}
    end = 0
    for name, array in ordered:
        start, end = end, end + array.nbytes
        kind = dtype(array.dtype).name.upper()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path, durable=True) as temporary, open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in ordered:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def read(path: str | os.PathLike[str], expected: Mapping[str, Argument]) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint.

    Args:
        path: The file.
        expected: What has to be in it, by name.

    Raises:
        Error: The file is missing or damaged, or does not fit; it names every tensor that does not.
    """
    name = file_name(path)
    found = read_tensors(name, what="the checkpoint ")
    problems = [f"'{key}' ({a.shape}) is missing" for key, a in expected.items() if key not in found]
    problems += [f"'{key}' has no place here" for key in sorted(found.keys() - expected.keys())]
    for key, argument in expected.items():
        array = found.get(key)
        if array is None:
            continue
        # Frozen parameters may have symbols for sizes.
        wanted = [d if type(d) is int else None for d in argument.shape.dims]
        fits = len(wanted) == array.ndim and all(w in (None, s) for w, s in zip(wanted, array.shape, strict=True))
        if not fits or array.dtype != argument.shape.dtype.numpy:
            problems.append(f"'{key}' is {array.dtype}{list(array.shape)}, not {argument.shape}")
    if problems:
        more = f"\n  and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise Error(
            f"the checkpoint {name} does not fit:\n  " + "\n  ".join(problems[:_NAMED]) + more,
            hint="it has to be of the same graph, with the same kind of optimiser and the same precision and accumulate",
        )
    return found
