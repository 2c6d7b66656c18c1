"""The plan of a quantisation: the format of each tensor, and remarks about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from rlx.ir.dtype import dtype
from rlx.llm.quantization.file_types import PLAIN
from rlx.llm.quantization.importance import ImportanceMatrix
from rlx.llm.quantization.mixture import EMBEDDINGS, OUTPUT, ChosenFormat, Mixture
from rlx.llm.quantization.packing import converted, format_of, unchanged
from rlx.llm.quantization.source import SourceModel
from rlx.support.errors import Error
from rlx.support.short import join_names
from rlx.weights import PackedBlocks, Weight
from rlx.weights.encoding import Unreadable

_NAMED = 4  # the largest number of tensors in a remark


@dataclass(frozen=True)
class QuantizationPlan:
    """The formats of the tensors of a file.

    Attributes:
        source: The tensors.
        formats: The formats of those that get another one.
        importance: The importance of columns, or None.
        remarks: Lines about tensors that do not have the format of the recipe, or had too few bits before.
    """

    source: SourceModel
    formats: Mapping[str, ChosenFormat]
    importance: ImportanceMatrix | None
    remarks: tuple[str, ...]

    def tensors(self, executor: Executor | None) -> dict[str, Weight]:
        """Return the tensors of the file. They are converted when they are read."""
        result: dict[str, Weight] = {}
        for name, weight in self.source.tensors.items():
            chosen = self.formats.get(name)
            if chosen is None:
                result[name] = unchanged(weight)
            else:
                factors = None if self.importance is None else _factors(self.importance, weight)
                result[name] = converted(weight, chosen.target, factors, executor)
        return result


def plan_quantization(source: SourceModel, mixture: Mixture, importance: ImportanceMatrix | None) -> QuantizationPlan:
    """Return the plan for a model.

    Raises:
        Error: A pattern matches no tensor, a tensor cannot be read, or the type needs an importance matrix.
    """
    shapes = {name: weight.shape for name, weight in source.tensors.items()}
    chosen = {n: c for n, c in mixture.choose(shapes).items() if _is_float(source.tensors[n])}
    for pattern, _ in mixture.overrides:
        if not any(pattern.search(name) for name in chosen):
            raise Error(
                f"the pattern '{pattern.pattern}' matches no tensor that is quantised",
                hint=f"names are like {join_names(list(chosen)[-3:])}; `rlx gguf FILE` lists them",
            )
    for name, format_ in chosen.items():
        is_new = format_of(source.tensors[name]) != format_.target.name
        if is_new and mixture.needs_importance(name, format_.target):
            _check_importance(name, format_.target.name, importance)
    remarks = (
        *source.remarks,
        *_fallbacks(source, chosen),
        *_requantised(source, chosen),
        *_without_importance(chosen, importance),
    )
    return QuantizationPlan(source, chosen, importance, remarks)


def _check_importance(name: str, target: str, importance: ImportanceMatrix | None) -> None:
    if importance is None or name not in importance.entries:
        what = "an importance matrix" if importance is None else f"the importance of '{name}'"
        raise Error(
            f"the format {target} of tensor '{name}' needs {what}",
            hint="make one with llama-imatrix and give it as imatrix, or use a type of more bits",
        )


def _is_float(weight: Weight) -> bool:
    if isinstance(weight.encoding, Unreadable):
        weight.numpy()  # raises an error
    return isinstance(weight.encoding, PackedBlocks) or dtype(weight.dtype).is_float


def _factors(importance: ImportanceMatrix, weight: Weight) -> np.ndarray | None:
    """Return the importance of the columns of a tensor. Matrices of embeddings often have one of another shape."""
    try:
        return importance.of(weight.name, weight.shape)
    except Error:
        if weight.name in EMBEDDINGS:
            return None
        raise


def _fallbacks(source: SourceModel, chosen: Mapping[str, ChosenFormat]) -> Iterator[str]:
    """Yield remarks about rows that do not divide into blocks."""
    groups: defaultdict[tuple[int, str, int, str], list[str]] = defaultdict(list)
    for name, format_ in chosen.items():
        if format_.wanted is not None:
            columns = source.tensors[name].shape[-1]
            groups[columns, format_.wanted.name, format_.wanted.block, format_.target.name].append(name)
    for (columns, wanted, block, target), names in groups.items():
        verb = "becomes" if len(names) == 1 else "become"
        yield (
            f"{len(names)} of {len(source.tensors)} tensors {verb} {target} instead of {wanted}: rows of {columns} "
            f"elements do not divide into blocks of {block} ({join_names(names, _NAMED)})"
        )


def _requantised(source: SourceModel, chosen: Mapping[str, ChosenFormat]) -> Iterator[str]:
    """Yield a remark about tensors that are packed already."""
    names = [
        name
        for name, format_ in chosen.items()
        if isinstance(source.tensors[name].encoding, PackedBlocks)
        and format_of(source.tensors[name]) != format_.target.name
        and format_.target.name not in PLAIN
    ]
    if names:
        listed = join_names(names, _NAMED)
        count = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
        yield (
            f"{count} packed already, and rounded a second time; a conversion from f16, bf16 or "
            f"f32 is more accurate ({listed})"
        )


def _without_importance(chosen: Mapping[str, ChosenFormat], importance: ImportanceMatrix | None) -> Iterator[str]:
    """Yield a remark about tensors that the importance matrix lacks."""
    if importance is not None:
        packed = [name for name, format_ in chosen.items() if format_.target.name not in PLAIN]
        names = [name for name in packed if name not in importance.entries and name not in (*EMBEDDINGS, OUTPUT)]
        if names:
            yield f"{importance.origin} has no importance of {len(names)} tensors ({join_names(names, _NAMED)})"
