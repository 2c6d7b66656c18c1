"""Print the metadata and the tensors of a GGUF file."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlx.cli.streams import say
from rlx.support.printable import printable

if TYPE_CHECKING:
    from rlx.weights import Weight, Weights

_SHOWN = 6  # elements of an array
_LONGEST = 100  # characters of a text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="a GGUF file (of several parts, the first)")
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object, with all metadata and tensors or with --tensor"
    )
    parser.add_argument("--tensor", metavar="NAME", help="print this tensor with a summary of its values")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.support.errors import Error
    from rlx.weights import gguf
    from rlx.weights import open as open_weights
    from rlx.weights.mapped import content_of

    if content_of(arguments.file)[:4] != gguf.MAGIC:
        raise Error(f"{arguments.file} is not a GGUF file", hint="rlx inspect prints the tensors of other files")
    weights = open_weights(arguments.file)
    if arguments.tensor is not None:
        summary = _TensorSummary.of(weights[arguments.tensor])
        say(json.dumps(summary.body(), allow_nan=False) if arguments.json else summary.text())
    elif arguments.json:
        say(json.dumps(_as_json(weights), allow_nan=False))
    else:
        say(gguf_text(weights))
    return 0


def gguf_text(weights: Weights) -> str:
    """Return the metadata, then the tensors of a file: name, type, shape and size."""
    from rlx.report.text import bytes_text, table

    pairs = [[printable(key, keep=""), _shown(value)] for key, value in weights.metadata.items()]
    rows = [
        [printable(w.name, keep=""), _type_of(w), "×".join(map(str, w.shape)), bytes_text(w.nbytes)]
        for w in weights.values()
    ]
    total = bytes_text(sum(w.nbytes for w in weights.values()))
    return "\n".join(
        [
            f"{weights.origin}: {len(rows)} tensors, {total}",
            *table(pairs, ["key", "value"]),
            "",
            *table(rows, ["tensor", "type", "shape", "size"], right=[3]),
        ]
    )


def _type_of(weight: Any) -> str:
    return weight.dtype.name if weight.encoding.name in ("plain", "swapped") else weight.encoding.name


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return printable(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}… ({len(value)} characters)", keep="")
    if hasattr(value, "__len__"):
        shown = ", ".join(printable(str(v)[:_LONGEST], keep="") for v in value[:_SHOWN])
        more = f", … ({len(value)} in all)" if len(value) > _SHOWN else ""
        return f"[{shown}{more}]"
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    # JSON has no NaN and no infinity.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _as_json(weights: Weights) -> dict[str, Any]:
    return {"metadata": _plain(dict(weights.metadata)), "tensors": [_described(w) for w in weights.values()]}


def _described(weight: Weight) -> dict[str, Any]:
    return {"name": weight.name, "type": _type_of(weight), "shape": list(weight.shape), "bytes": weight.nbytes}


@dataclass(frozen=True)
class _TensorSummary:
    """A summary of a tensor's values.

    Attributes:
        weight: The tensor.
        statistics: The least and the largest value, the mean and the standard deviation, of finite elements.
        not_finite: The number of other elements.
        first: The first elements.
    """

    weight: Any
    statistics: dict[str, float]
    not_finite: int
    first: list[float]

    @classmethod
    def of(cls, weight: Weight) -> _TensorSummary:
        """Read a tensor."""
        import numpy as np

        values = weight.numpy().astype(np.float64)
        finite = values[np.isfinite(values)]
        numbers = {"least": finite.min, "largest": finite.max, "mean": finite.mean, "deviation": finite.std}
        statistics = {name: float(number()) for name, number in numbers.items()} if finite.size else {}
        return cls(weight, statistics, values.size - finite.size, values.reshape(-1)[:_SHOWN].tolist())

    def body(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        numbers = {**self.statistics, "not_finite": self.not_finite, "first": self.first}
        return {**_described(self.weight), **_plain(numbers)}

    def text(self) -> str:
        """Return the summary for readers."""
        shape = "×".join(map(str, self.weight.shape))
        lines = [f"{printable(self.weight.name, keep='')}: {_type_of(self.weight)} {shape}, {self.weight.nbytes} bytes"]
        if self.statistics:
            s = self.statistics
            lines.append(f"from {s['least']:g} to {s['largest']:g}, mean {s['mean']:g}, deviation {s['deviation']:g}")
        if self.not_finite:
            lines.append(f"{self.not_finite} elements are not finite")
        if self.first:
            lines.append("first: " + " ".join(f"{v:g}" for v in self.first))
        return "\n".join(lines)
