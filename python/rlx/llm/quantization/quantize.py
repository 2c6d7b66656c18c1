"""`quantize`: converts a language model to a GGUF file with packed weights."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.llm.quantization.file_types import FileType, find_file_type, find_tensor_format
from rlx.llm.quantization.importance import ImportanceMatrix, read_importance
from rlx.llm.quantization.mixture import Mixture, ModelFacts
from rlx.llm.quantization.packing import format_of
from rlx.llm.quantization.plan import plan_quantization
from rlx.llm.quantization.source import open_source
from rlx.schemes import Scheme
from rlx.support.errors import Error
from rlx.support.files import check_writable, file_name
from rlx.support.short import short_repr
from rlx.targets.host import usable_cpus
from rlx.weights import Weight, save_gguf

Progress = Callable[[int, int, str], None]

_QUANTIZATION_VERSION = 2
_LONGEST_PATTERN = 1000
_MOST_THREADS = 1024


@dataclass(frozen=True)
class QuantizedFile:
    """The result of `quantize`.

    Attributes:
        path: The file.
        formats: The format of each tensor, in the order of the file: `"q4_k"`, `"f32"`.
        nbytes: The number of bytes of the tensors.
        elements: The number of their elements.
        remarks: Lines for the user: tensors that have another format than their recipe, for example.
    """

    path: str
    formats: Mapping[str, str] = field(repr=False)
    nbytes: int
    elements: int
    remarks: tuple[str, ...]

    @property
    def bits_per_weight(self) -> float:
        """The number of bits for an element, on average."""
        return 8 * self.nbytes / max(self.elements, 1)


@with_call_errors
def quantize(
    src: str | os.PathLike[str],
    out: str | os.PathLike[str],
    type: str = "Q4_K_M",
    *,
    threads: int | None = None,
    overrides: Mapping[str, str] | None = None,
    imatrix: str | os.PathLike[str] | ImportanceMatrix | None = None,
    pure: bool = False,
    lora: Any = None,
    progress: Progress | None = None,
    remark: Callable[[str], None] | None = None,
) -> QuantizedFile:
    """Write a language model to a GGUF file whose weights have another format. One tensor at a time is in memory.

    Args:
        src: A GGUF file (of several parts, the first), or a folder with `config.json`, safetensors and a tokenizer.
        out: The file to write. It is replaced once it is complete.
        type: The type of the file, in any case: a name of llama.cpp (`"Q4_K_M"`), or a format of tensors (`"nvfp4"`).
            Tensors have the formats that llama.cpp chooses for this type.
        threads: The number of threads; None is one for each core. The bytes do not depend on it.
        overrides: Formats by regular expressions, which are searched in the names of tensors: `{"ffn_down": "q6_k"}`. The
            first that matches decides.
        imatrix: An importance matrix of llama.cpp, or its file.
        pure: Give all matrices the format of the type. `overrides` still apply.
        lora: LoRA adapters that are merged: their updates are added to the weights. As `rlx.llm.load` takes them.
        progress: Is called after each tensor with the number of converted tensors, the number of all, and the name.
        remark: Is called before the work with each line of the result's `remarks`; None warns.

    Raises:
        Error: A file is missing or damaged, cannot be written, or is the source itself; a value is not valid; a tensor
            cannot be represented.
        UnsupportedError: The architecture or the tokenizer of a folder is not known.
    """
    name = file_name(out)
    file_type = find_file_type(type)
    patterns = _patterns(overrides)
    count = _threads(threads)
    check_writable(name)
    matrix = imatrix if imatrix is None or isinstance(imatrix, ImportanceMatrix) else read_importance(imatrix)
    source = open_source(src, lora)
    source.check_output(name, () if matrix is None else (matrix.origin,))
    mixture = Mixture(ModelFacts.of(source.metadata), file_type, pure, patterns, matrix is not None)
    plan = plan_quantization(source, mixture, matrix)
    for line in plan.remarks:
        warnings.warn(line, stacklevel=3) if remark is None else remark(line)
    metadata = {**source.metadata, **_pairs(file_type, matrix)}
    with ThreadPoolExecutor(count) as executor:
        tensors = plan.tensors(executor if count > 1 else None)
        reported = tensors if progress is None else _reported(tensors, progress)
        save_gguf(name, reported, {key: value for key, value in metadata.items() if value is not None})
    return QuantizedFile(
        name,
        {key: format_of(weight) for key, weight in tensors.items()},
        sum(weight.nbytes for weight in tensors.values()),
        sum(prod(weight.shape) for weight in tensors.values()),
        plan.remarks,
    )


def _patterns(overrides: Mapping[str, str] | None) -> list[tuple[re.Pattern[str], Scheme]]:
    """Return the compiled patterns with their formats."""
    result: list[tuple[re.Pattern[str], Scheme]] = []
    if not isinstance(overrides, Mapping | None):
        raise Error(f"overrides must be a mapping from patterns to formats, got {short_repr(overrides)}")
    for pattern, name in () if overrides is None else overrides.items():
        if not isinstance(pattern, str) or not pattern or len(pattern) > _LONGEST_PATTERN:
            raise Error(f"overrides must have a regular expression for each format, got {short_repr(pattern)}")
        try:
            compiled = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as problem:
            raise Error(f"{short_repr(pattern)} is not a valid regular expression: {problem}") from None
        result.append((compiled, find_tensor_format(name)))
    return result


def _threads(threads: int | None) -> int:
    if threads is None:
        return usable_cpus()
    if type(threads) is not int or not 1 <= threads <= _MOST_THREADS:
        raise Error(f"threads must be an integer from 1 to {_MOST_THREADS}, got {short_repr(threads)}")
    return threads


def _pairs(file_type: FileType, importance: ImportanceMatrix | None) -> dict[str, Any]:
    """Return the metadata of the conversion. None removes a value of the source."""
    pairs: dict[str, Any] = {
        "general.quantization_version": _QUANTIZATION_VERSION,
        "general.file_type": file_type.number,
    }
    if importance is not None:
        pairs |= {
            "quantize.imatrix.file": importance.origin,
            "quantize.imatrix.dataset": importance.datasets[0] if importance.datasets else None,
            "quantize.imatrix.entries_count": len(importance.entries),
            "quantize.imatrix.chunks_count": importance.chunks,
        }
    return pairs


def _reported(tensors: Mapping[str, Weight], progress: Progress) -> dict[str, Weight]:
    """Return tensors that report their progress when they are read. The writer reads each right before it writes it."""
    done = 0

    def read(weight: Weight) -> Any:
        nonlocal done
        data = weight.read()
        done += 1
        progress(done, len(tensors), weight.name)
        return data

    return {name: replace(weight, read=partial(read, weight)) for name, weight in tensors.items()}
