"""Round the weights and activations of a graph (MLIR text or ONNX) to integers of 8 or 4 bits, or convert a language model.

A language model is a GGUF file (of several parts, the first) or a folder with config.json and safetensors. It is written
as a GGUF file, with the formats that llama.cpp chooses for the type: `rlx quantize MODEL -o OUT.gguf --type Q4_K_M`. The
other paragraphs are about graphs.

Ranges of activations come from data: an .npz file with an array for each input, by name. An array has one more axis
than its input, for the batches, or the same number of axes, and is then cut along its first axis.

The written graph takes the same weights as the given one, and rounds them when it is loaded. With --output-params, the
rounded weights are written to a file, and the graph takes those. With --integer-only, all ops are integer ops, and the
graph contains its weights and the scales of inputs and outputs. This form is for microcontrollers and FPGAs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.cli.files import output_file
from rlx.cli.options import add_options, bindings
from rlx.cli.quantize_model import add_model_options, check_no_model_options, is_model, run_model
from rlx.cli.streams import say

if TYPE_CHECKING:
    from rlx.ir.graph.graph import Graph
    from rlx.ir.interface import Argument
    from rlx.passes.dtypes.quantization_record import CalibrationRecord

# The options for graphs, with those of `QuantizationScheme`.
_OPTIONS = (
    *("params", "data", "record", "save_record", "output_params", "method", "percentile", "keep", "sensitivity"),
    *("min_cosine", "function", "bind", "integer_only", "bits", "layer", "mode", "max_bytes", "allow_float"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    from rlx.passes.dtypes.quantization_scheme import QuantizationScheme
    from rlx.quantization.observers import METHODS
    from rlx.support.options import option_help

    parser.add_argument(
        "file",
        metavar="FILE",
        help="MLIR text (rlx or StableHLO ops) or ONNX, - is standard input; or a GGUF file or a folder with a language model",
    )
    parser.add_argument(
        "-o", "--output", type=output_file, required=True, metavar="OUT", help="the file to write; - is standard output"
    )
    parser.add_argument("--params", metavar="FILE", help="a file with parameters: safetensors, .npz or .npy")
    parser.add_argument("--data", metavar="FILE.npz", help="inputs to calibrate with, by name")
    parser.add_argument(
        "--record", metavar="FILE.json", help="a calibration record, or ranges of values, instead of data"
    )
    parser.add_argument(
        "--save-record",
        type=output_file,
        metavar="FILE.json",
        help="write the calibration record, or the ranges, to a file",
    )
    parser.add_argument(
        "--output-params", type=output_file, metavar="FILE", help="write the rounded weights as safetensors"
    )
    add_options(parser, of=QuantizationScheme)
    parser.add_argument(
        "--method", choices=METHODS, default="minmax", help="how ranges are chosen (default: %(default)s)"
    )
    parser.add_argument(
        "--percentile",
        type=float,
        default=99.99,
        metavar="P",
        help="the percentage of values in range (default: %(default)s)",
    )
    parser.add_argument("--keep", action="append", default=[], metavar="NAME", help="a product that stays in f32")
    parser.add_argument("--sensitivity", action="store_true", help="print the loss of accuracy of each product")
    parser.add_argument(
        "--min-cosine",
        type=float,
        metavar="C",
        help="keep the products with the largest loss in f32, until the outputs reach this cosine with those in f32",
    )
    parser.add_argument("--function", metavar="NAME", help="the function to take (default: the first public one)")
    add_options(parser, "bind")
    _add_integers(parser)
    options = (*_OPTIONS, *option_help(QuantizationScheme))
    parser.set_defaults(graph_defaults={name: parser.get_default(name) for name in options})
    add_model_options(parser)


def _add_integers(parser: argparse.ArgumentParser) -> None:
    """Declare the options for integer-only graphs."""
    integers = parser.add_argument_group("integers alone")
    integers.add_argument("--integer-only", action="store_true", help="write a graph of only integer ops")
    integers.add_argument(
        "--bits",
        type=int,
        choices=(8, 4, 2),
        default=8,
        help="the bits of the weights of products (default: %(default)s)",
    )
    integers.add_argument(
        "--layer", action="append", default=[], metavar="NAME=BITS", help="the bits of the weights of one product"
    )
    integers.add_argument(
        "--mode",
        choices=("double", "single", "short"),
        default="double",
        help="how sums are scaled: see rlx.requantize (default: %(default)s)",
    )
    integers.add_argument(
        "--allow-float",
        action="store_true",
        help="leave ops in f32 that have no form in integers",
    )
    integers.add_argument(
        "--max-bytes",
        type=int,
        metavar="N",
        help="choose bits for each product, so that the weights take at most N bytes",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if is_model(arguments.file):
        return run_model(arguments)
    return _run_graph(arguments)


def _run_graph(arguments: argparse.Namespace) -> int:
    from rlx.cli.files import read_graph, write_output
    from rlx.support.errors import Error
    from rlx.targets.options import CompileOptions
    from rlx.targets.stages import prepare_graph
    from rlx.weights import open as open_weights

    _check(arguments)
    graph = read_graph(arguments.file, arguments.function, arguments.bind)
    if arguments.output_params is not None and arguments.params is None and not graph.weights:
        raise Error("--output-params needs the weights", hint="give --params=FILE")
    graph = prepare_graph(graph, CompileOptions(bind=bindings(arguments.bind)))
    params: dict[str, Any] = dict(graph.weights)
    if arguments.params is not None:
        stored = open_weights(arguments.params)
        params |= {a.name: stored[a.name].of_dtype(a.shape.dtype).numpy() for a in graph.params if a.name in stored}
    data = _batches(arguments.data, graph) if arguments.data is not None else []
    texts: list[str] = []
    try:
        quantized = _integers if arguments.integer_only else _quantized
        result, described = quantized(arguments, graph, data, params, texts)
        write_output(arguments.output, _text(result))
        if arguments.output != "-":
            texts.append(f"{arguments.output}: {_summary(result)}, {described}")
    finally:  # after the files, because the reader of the text may end early; also if the accuracy is not reached
        for text in texts:
            say(text, stream=sys.stderr if arguments.output == "-" else sys.stdout)
    return 0


def _quantized(
    arguments: argparse.Namespace,
    graph: Graph,
    data: list[dict[str, np.ndarray]],
    params: Mapping[str, Any],
    texts: list[str],
) -> tuple[Graph, str]:
    """Return the graph with quantised products, and a description of the scheme. Write requested parameters.

    Append the texts to print.
    """
    from rlx.passes.dtypes.quantization_scheme import QuantizationScheme
    from rlx.quantization.quantize import quantize
    from rlx.support.errors import Error
    from rlx.support.options import option_help

    record = _record(arguments, graph, data, params)
    options: Any = {name: getattr(arguments, name) for name in option_help(QuantizationScheme)}
    keep = [*arguments.keep, *_measured(arguments, graph, record, data, params, options, texts)]
    known = params if arguments.output_params is not None else {}
    result = quantize(graph, record, **options, keep=keep, params=known)
    if arguments.output_params is not None:
        missing = [a.name for a in result.params if a.name not in result.weights and a.name not in params]
        if missing:
            raise Error(f"--output-params: '{missing[0]}' is not in --params={arguments.params}")
        _write_params(arguments.output_params, result, params)
    return result, f"weights {arguments.weights}, activations {arguments.activations}"


def _check(arguments: argparse.Namespace) -> None:
    """Check that the options are compatible.

    Raises:
        Error: They are not.
    """
    from rlx.quantization.sensitivity import check_cosine
    from rlx.support.errors import Error

    check_no_model_options(arguments)
    if arguments.save_record is not None:
        if arguments.record is not None:
            raise Error("--save-record writes the ranges of --data, and --record reads them: give one")
        if not arguments.integer_only and arguments.activations != "int8":
            raise Error(f"--save-record needs ranges, which --activations={arguments.activations} does not use")
    if arguments.integer_only:
        _check_integers(arguments)
        return
    for name, default in (("bits", 8), ("layer", []), ("mode", "double"), ("max_bytes", None), ("allow_float", False)):
        if getattr(arguments, name) != default:
            raise Error(f"--{name.replace('_', '-')} goes with --integer-only")
    measured = arguments.sensitivity or arguments.min_cosine is not None
    if arguments.data is None and (measured or (arguments.record is None and arguments.activations == "int8")):
        what = "measuring accuracy" if measured else "rounding activations"
        raise Error(f"{what} needs data", hint="give --data=FILE.npz, with an array for each input")
    if arguments.min_cosine is not None:
        check_cosine(arguments.min_cosine)


def _check_integers(arguments: argparse.Namespace) -> None:
    """Check that the options are compatible with integer-only graphs.

    Raises:
        Error: They are not.
    """
    from rlx.quantization.sensitivity import check_cosine
    from rlx.support.errors import Error

    others = {"weights": "int8", "activations": "int8", "keep": [], "sensitivity": False, "output_params": None}
    for name, default in others.items():
        if getattr(arguments, name) != default:
            raise Error(f"--{name.replace('_', '-')} does not go with --integer-only")
    searches = arguments.max_bytes is not None or arguments.min_cosine is not None
    if arguments.min_cosine is not None:
        check_cosine(arguments.min_cosine)
    if searches and (arguments.bits != 8 or arguments.layer):
        raise Error("--max-bytes and --min-cosine choose the bits; --bits and --layer give them")
    if arguments.data is None and (searches or arguments.record is None):
        what = "measuring accuracy" if searches else "rounding activations"
        raise Error(f"{what} needs data", hint="give --data=FILE.npz, with an array for each input")


def _integers(
    arguments: argparse.Namespace,
    graph: Graph,
    data: list[dict[str, np.ndarray]],
    params: Mapping[str, Any],
    texts: list[str],
) -> tuple[Graph, str]:
    """Return the integer-only graph, and a description of its weights. Append the result of a search for bits."""
    from rlx.passes.integer.value_ranges import ValueRanges
    from rlx.quantization.bit_widths import search_bits
    from rlx.quantization.integer import integer_only, observe_ranges
    from rlx.support.errors import Error

    missing = next((a.name for a in graph.params if a.name not in params), None)
    if missing is not None:
        raise Error(f"the value of param '{missing}' is not known", hint="give --params=FILE, which has it")
    if arguments.record is not None:
        ranges = ValueRanges.load(arguments.record)
    else:
        ranges = observe_ranges(graph, data, params=params, method=arguments.method, percentile=arguments.percentile)
        if arguments.save_record is not None:
            ranges.save(arguments.save_record)
    layers, described = _layers(arguments.layer), f"weights of {arguments.bits} bits"
    options: dict[str, Any] = {"params": params, "symmetric": arguments.symmetric}
    if arguments.max_bytes is not None or arguments.min_cosine is not None:
        budget: Any = {"max_bytes": arguments.max_bytes, "min_score": arguments.min_cosine}
        found = search_bits(graph, ranges, data, **budget, **options)
        texts.append(str(found))
        layers, described = dict(found.layers), f"{found.weight_bytes} bytes of weights"
    options |= {"bits": arguments.bits, "layers": layers, "mode": arguments.mode, "allow_float": arguments.allow_float}
    return integer_only(graph, ranges, **options), described


def _layers(texts: list[str]) -> dict[str, int]:
    """Return bits by product, from texts like `fc=4`.

    Raises:
        Error: A text does not have this form.
    """
    from rlx.support.errors import Error

    pairs = [text.rpartition("=") for text in texts]
    for text, (name, _, bits) in zip(texts, pairs, strict=True):
        if not name or not bits.isdecimal():
            raise Error(f"--layer={text}: expected NAME=BITS, such as --layer=fc=4")
    return {name: int(bits) for name, _, bits in pairs}


def _record(
    arguments: argparse.Namespace, graph: Graph, data: list[dict[str, np.ndarray]], params: Mapping[str, Any]
) -> CalibrationRecord | None:
    from rlx.passes.dtypes.quantization_record import CalibrationRecord
    from rlx.quantization.calibrate import calibrate

    if arguments.record is not None:
        return CalibrationRecord.load(arguments.record)
    if arguments.activations != "int8":
        return None
    record = calibrate(graph, data, params=params, method=arguments.method, percentile=arguments.percentile)
    if arguments.save_record is not None:
        record.save(arguments.save_record)
    return record


def _measured(
    arguments: argparse.Namespace,
    graph: Graph,
    record: CalibrationRecord | None,
    data: list[dict[str, np.ndarray]],
    params: Mapping[str, Any],
    options: dict[str, Any],
    texts: list[str],
) -> list[str]:
    """Return the products that must stay in f32 for the requested accuracy. Append a table of the loss of each product."""
    from rlx.quantization.sensitivity import quantization_sensitivity

    if not arguments.sensitivity and arguments.min_cosine is None:
        return []
    report = quantization_sensitivity(graph, record, data, params=params, **options)
    texts.append(str(report))
    return [] if arguments.min_cosine is None else report.keep(arguments.min_cosine)


def _batches(path: str, graph: Graph) -> list[dict[str, np.ndarray]]:
    """Return the batches of inputs in an .npz file.

    Raises:
        Error: The file cannot be read, or an array does not fit.
    """
    from rlx.support.errors import Error
    from rlx.weights import open as open_weights

    stored = open_weights(path)
    arrays: dict[str, list[np.ndarray]] = {}
    for argument in graph.inputs:
        if argument.name not in stored:
            raise Error(f"{path} has no array '{argument.name}'; it has {', '.join(stored) or 'none'}")
        arrays[argument.name] = _cut(path, argument, stored[argument.name].of_dtype(argument.shape.dtype).numpy())
    if unread := sorted(set(stored) - set(arrays)):
        say(f"{path}: {', '.join(unread)} is no input, and not read", stream=sys.stderr)
    counts = {name: len(parts) for name, parts in arrays.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} of '{name}'" for name, count in counts.items())
        raise Error(f"{path} has not as many batches of each input: {listed}")
    return [dict(zip(arrays, parts, strict=True)) for parts in zip(*arrays.values(), strict=True)]


def _cut(path: str, argument: Argument, array: np.ndarray) -> list[np.ndarray]:
    """Return the batches of one input."""
    from rlx.support.errors import Error

    shape = argument.shape
    if array.ndim == shape.rank + 1:
        return list(array)
    if array.ndim != shape.rank or array.ndim == 0:
        raise Error(
            f"{path}: '{argument.name}' is {array.dtype}{list(array.shape)}, for an input {shape}",
            hint="give it one axis more, of batches, or all of them joined along the first axis",
        )
    size = shape.dims[0] if isinstance(shape.dims[0], int) else len(array)
    if size == 0 or len(array) < size:
        raise Error(f"{path}: '{argument.name}' has {len(array)} rows, and one batch has {size}")
    if left := len(array) % size:
        what = f"{left} of {len(array)} rows of '{argument.name}'"
        say(f"{path}: {what} do not fill a batch of {size}, and are not read", stream=sys.stderr)
    return [array[i : i + size] for i in range(0, len(array) - left, size)]


def _text(graph: Graph) -> bytes:
    """Return the text of a graph, with locations if ops have layers: targets name functions and rows of reports by them."""
    from rlx.ir.location import layer_of
    from rlx.ir.op import opview

    layers = any(layer_of(op.location) for op in opview.operations(graph.function.entry_block))
    return f"{graph.text(locations=layers).rstrip()}\n".encode()


def _write_params(path: str, graph: Graph, params: Mapping[str, Any]) -> None:
    from rlx.weights.safetensors import write

    values = {a.name: np.asarray(graph.weights.get(a.name, params.get(a.name))) for a in graph.params}
    write(path, values)


def _summary(graph: Graph) -> str:
    from collections import Counter

    from rlx.ir.op import opview
    from rlx.report.text import counts_text

    names = Counter(
        opview.name_of(op) for op in opview.operations(graph.function.entry_block) if op.name.startswith("rlx.")
    )
    products = Counter(
        {name: n for name, n in names.items() if name in ("q_matmul", "q_conv2d", "matmul", "conv", "dot_general")}
    )
    return f"{graph.name}, {counts_text(products)}"
