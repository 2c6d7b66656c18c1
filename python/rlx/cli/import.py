"""Check whether a file or a folder can be imported, and print what is taken, what is open and what is rejected.

Formats: ONNX, StableHLO, MLIR of RLX, programs of torch.export, GGUF, safetensors, folders of the Hugging Face hub. The exit
code is 1 if it cannot be imported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlx.cli.streams import say
from rlx.support.printable import printable

if TYPE_CHECKING:
    from rlx.cli.import_summary import ImportSummary

_WITH_FLAGS = ("ONNX", "MLIR")  # formats of the commands that have --bind
_SHOWN = 8  # the number of ops and of unused tensors that are listed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="a model of any format")
    parser.add_argument(
        "--bind",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="the value of an open size, such as batch=2 or height=32*rows, or of an input of integers, such as shape=2,4",
    )
    parser.add_argument("--function", metavar="NAME", help="the function of a module (default: the first public one)")
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.cli.import_summary import summary_of

    summary = summary_of(arguments.file, arguments.bind, arguments.function)
    say(json.dumps(summary.as_json(), allow_nan=False) if arguments.json else "\n".join(_lines(summary)))
    return 0 if summary.is_imported else 1


def _lines(summary: ImportSummary) -> Iterator[str]:
    """Yield the lines of a summary."""
    from rlx.report.text import bytes_text, table

    yield printable(
        f"{summary.file}: {summary.format}, {'imported' if summary.is_imported else 'not imported'}", keep=""
    )
    rows = [[name, value] for name, value in summary.details.items()]
    if summary.weights:
        kinds = ", ".join(f"{count} {kind}" for kind, count in summary.weights.items())
        rows.append(
            ["weights", f"{sum(summary.weights.values())} tensors, {bytes_text(summary.weight_bytes)}: {kinds}"]
        )
    if summary.ops:
        rows.append(["ops", f"{sum(summary.ops.values())}: {_listed([f'{c} {n}' for n, c in summary.ops.items()])}"])
    if summary.unused:
        rows.append(["unused tensors", f"{len(summary.unused)}: {_listed(summary.unused)}"])
    if summary.open_sizes:
        flags = " ".join(f"--bind={name}=SIZE" for name in summary.open_sizes)
        names = ", ".join(summary.open_sizes)
        rows.append(["open sizes", f"{names} ({flags})" if summary.format in _WITH_FLAGS else names])
    for name, dtype in summary.constants.items():
        value, values = ("N,N,…", "[N, N, …]") if "[" in dtype else ("VALUE", "VALUE")
        rows.append(["possible constant", f"{name} ({dtype}): --bind={name}={value}, constants={{{name!r}: {values}}}"])
    yield from table(rows, indent="  ")
    for title, tensors in (("inputs", summary.inputs), ("outputs", summary.outputs)):
        if tensors:
            yield f"{title}:"
            yield from table(
                [[t["name"], f"{t['dtype']}[{', '.join(map(str, t['shape']))}]"] for t in tensors], indent="  "
            )
    if summary.problem is not None:
        yield printable(f"problem: {summary.problem}")
    if summary.hint is not None:
        yield printable(f"hint: {summary.hint}")
    if summary.is_imported and summary.call is not None:
        yield printable(f"in Python: {summary.call}", keep="")


def _listed(names: list[Any]) -> str:
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(str, names[:_SHOWN])) + more
