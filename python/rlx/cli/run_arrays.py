"""Arrays for a program on the command line: `rlx run` and `rlx-run` share them. It needs no compiler."""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rlx.cli import ended_by_interrupts
from rlx.cli.streams import say, standard_output

if TYPE_CHECKING:
    from rlx.ir.interface import Argument, Output
    from rlx.runtime.program import Program
    from rlx.support.errors import Error
    from rlx.targets.artifacts.archive import Archive
    from rlx.targets.artifacts.entry import StoredEntry

Arrays = dict[str, np.ndarray]
# Characters that a name must not contain if it becomes a file name. A colon follows a drive or precedes a stream.
_SEPARATORS = re.compile(r"[/\\:]" if os.name == "nt" else "/")


@dataclass(frozen=True)
class MeasuredCall:
    """The function that runs the program, and the information about its last run."""

    run: Callable[[], list[np.ndarray]]
    remarks: Callable[[], Sequence[str]]


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments for arrays, outputs and the program."""
    parser.add_argument("--input", action="append", default=[], metavar="NAME=VALUE", help="an input")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter (weight)")
    parser.add_argument("--params", metavar="FILE", help="a file with parameters: safetensors, .npz or .npy")
    parser.add_argument(
        "--threads", type=int, metavar="N", help="threads to use on the CPU (default: one for each core)"
    )
    parser.add_argument("--repeat", type=int, metavar="N", help="run N more times and print the time of a run")
    parser.add_argument(
        "--save",
        action="append",
        default=[],
        metavar="[NAME=]FILE.npy",
        help="write an output to a file; without NAME, outputs are written in order",
    )
    parser.add_argument("--output-dir", metavar="DIR", help="write every output to DIR/NAME.npy")
    parser.add_argument(
        "--verify", metavar="SHA256", help="read the file only if this is its SHA-256, which `rlx compile` prints"
    )
    parser.add_argument("--entry", metavar="NAME", help="the entry point to run, for a compiled artifact with several")


def check_repeat(arguments: argparse.Namespace) -> None:
    """Check the value of `--repeat`.

    Raises:
        Error: It is not a positive number.
    """
    from rlx.support.errors import Error

    if arguments.repeat is not None and arguments.repeat < 1:
        raise Error(f"--repeat must be a positive number, got {arguments.repeat}")


def run_with_arrays(
    declared: Sequence[Argument],
    outputs: Sequence[Output],
    call_of: Callable[[Arrays, Arrays], MeasuredCall],
    arguments: argparse.Namespace,
    *,
    weights: Collection[str] = (),
    entry: StoredEntry | None = None,
) -> int:
    """Run a program on the arrays of the command line, and print or write the outputs.

    Args:
        declared: The arguments of the program.
        outputs: Its outputs.
        call_of: Returns the call for inputs and parameters.
        arguments: The arguments of the command.
        weights: The names of the parameters that come with a graph.
        entry: The entry point of a file, which may have values of parameters; None for a graph.

    Returns:
        The exit code.
    """
    from rlx.cli.values import named_arrays
    from rlx.support.printable import printable

    files = _files(arguments, outputs)
    if not any(files.values()):
        standard_output()
    inputs = named_arrays(arguments.input, "--input", declared)
    params = named_arrays(arguments.param, "--param", declared)
    if arguments.params is not None:
        params = _from_file(arguments.params, declared, params) | params
    if entry is not None and entry.parameters is not None:
        params = _stored(entry, params) | params
    _check(declared, inputs, params, weights)
    call = call_of(inputs, params)
    results = _timed(call.run, arguments.repeat)
    for output, array in zip(outputs, results, strict=True):
        for path in files[output.name]:
            _save(path, array)
    for output, array in zip(outputs, results, strict=True):
        say(
            f"{printable(output.name, keep='')}: {output.shape.dtype.name}{list(array.shape)}\n{np.array2string(array)}"
        )
    for line in call.remarks():
        say(line)
    return 0


def entry_of(archive: Archive, arguments: argparse.Namespace) -> StoredEntry:
    """Return the entry point of a file of programs that the command line names, or the only one.

    Raises:
        Error: There are several and none is named, or the named one does not exist.
    """
    if arguments.entry is not None and not archive.names:
        raise no_entry_points(arguments)
    return archive.entry(arguments.entry)


def no_entry_points(arguments: argparse.Namespace) -> Error:
    """Return the error for `--entry` with a file that has no entry points by name."""
    from rlx.support.errors import Error

    return Error(f"{arguments.file} has no entry points by name; leave out --entry={arguments.entry}")


def run_stored(entry: StoredEntry, arguments: argparse.Namespace) -> int:
    """Run an entry point of a file of programs on the arrays of the command line; see `run_with_arrays`.

    Raises:
        Error: The file has no program for the device of the command line, or the arrays do not fit.
    """
    from rlx.runtime.device import Device
    from rlx.support.errors import Error

    if arguments.device is not None and all(p.target != Device.of(arguments.device).value for p in entry.programs):
        targets = " and ".join(dict.fromkeys(p.target for p in entry.programs))
        raise Error(f"{arguments.file} is compiled for {targets}, not for {arguments.device}")
    call = partial(_stored_call, entry, arguments)
    signature = entry.signature
    return run_with_arrays(signature.arguments, signature.outputs, call, arguments, entry=entry)


def _stored_call(entry: StoredEntry, arguments: argparse.Namespace, inputs: Arrays, params: Arrays) -> MeasuredCall:
    from rlx.runtime.device import Device
    from rlx.runtime.entry_point import EntryPoint
    from rlx.runtime.program import Program

    target = None if arguments.device is None else Device.of(arguments.device).value
    program = Program({None: EntryPoint.of_stored(entry, target, arguments.threads)})
    program.set_params(params, copy=False)
    if entry.buckets is None:  # of several programs, only one runs
        program.load()
    return compiled_call(program, inputs)


def compiled_call(program: Program, inputs: Arrays) -> MeasuredCall:
    def run() -> list[np.ndarray]:
        with ended_by_interrupts():
            return program.run(inputs)

    return MeasuredCall(run, lambda: program.remarks)


def _files(arguments: argparse.Namespace, outputs: Sequence[Output]) -> dict[str, list[str]]:
    """Return the files that each output is written to."""
    from rlx.cli.pairs import split
    from rlx.support.errors import Error
    from rlx.support.suggestions import suggestion

    names = [o.name for o in outputs]
    files: dict[str, list[str]] = {name: [] for name in names}
    following = iter(names)
    for text in arguments.save:
        name, equals, path = split(text, "--save", files, bool)
        if not equals:
            name, path = next(following, ""), text
            if not name:
                raise Error(f"--save={text}: the program has only {len(names)} outputs")
        if name not in files:
            raise Error(f"--save={text}: there is no output '{name}'{suggestion(name, names)}")
        files[name].append(path)
    if arguments.output_dir is not None:
        for name in names:
            files[name].append(os.path.join(arguments.output_dir, _SEPARATORS.sub("_", name) + ".npy"))
    _check_paths(files)
    return files


def _check_paths(files: Mapping[str, Sequence[str]]) -> None:
    """Check that no file gets two outputs, and that no name is too long.

    Raises:
        Error: A file or name violates this.
    """
    from rlx.support.errors import Error
    from rlx.support.files import check_length

    outputs: dict[str, str] = {}
    for name, paths in files.items():
        for path in paths:
            check_length(path, hint="name the file yourself: --save=NAME=FILE.npy for each output")
            other = outputs.setdefault(os.path.realpath(path), name)
            if other != name:
                raise Error(
                    f"outputs '{other}' and '{name}' would both be written to {path}",
                    hint="give each a file of its own by --save=NAME=FILE.npy",
                )


def _save(path: str, array: np.ndarray) -> None:
    from rlx.cli.values import save_array
    from rlx.support.errors import Error

    folder = os.path.dirname(path) or "."
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as problem:
        raise Error(f"cannot make the folder {folder}: {problem.strerror}") from None
    save_array(path, array)


def _from_file(path: str, declared: Sequence[Argument], already_given: Mapping[str, np.ndarray]) -> Arrays:
    from rlx.weights import open as open_weights

    return open_weights(path).values_of(a for a in declared if a.kind == "param" and a.name not in already_given)


def _stored(entry: StoredEntry, already_given: Mapping[str, np.ndarray]) -> Arrays:
    """Return the parameter values that a file of programs contains or refers to, if any of them is needed."""
    assert entry.parameters is not None
    if entry.parameters.places.keys() <= already_given.keys():
        return {}
    return entry.parameters.arrays(entry.signature, entry.folder)


def _check(declared: Sequence[Argument], inputs: Arrays, params: Arrays, came: Collection[str] = ()) -> None:
    """Check that every argument is given by the right flag or came with the graph, and has the right shape and dtype.

    Raises:
        Error: The message names all missing arguments, each with the flag to add.
    """
    from rlx.cli.values import flag_for
    from rlx.ir.interface import check_argument
    from rlx.support.errors import Error
    from rlx.support.suggestions import suggestion

    for kind, arrays, other_option in (("input", inputs, "--param"), ("param", params, "--input")):
        names = {a.name for a in declared if a.kind == kind}
        for name in arrays:
            if name in names:
                continue
            if any(a.name == name for a in declared):
                raise Error(f"'{name}' is no {kind}; give it with {other_option}")
            known_names = ", ".join(sorted(names)) or "none"
            unnamed = any(re.fullmatch(r"arg\d+", n) for n in names)
            hint = f'MLIR forgets what %{name} is called: write %{name}: … {{rlx.name = "{name}"}}'
            raise Error(
                f"there is no {kind} '{name}'{suggestion(name, names)}; the program has {known_names}",
                hint=f"{hint}; JAX keeps names by as_text(debug_info=True)" if unnamed else None,
            )
    missing = []
    for argument in declared:
        array = (inputs | params).get(argument.name)
        if array is not None:
            check_argument(argument, array)
        elif argument.kind != "state" and argument.name not in came:
            missing.append(f"{argument.kind} '{argument.name}' ({argument.shape}) is missing: add {flag_for(argument)}")
    if missing:
        raise Error(
            "\n  ".join(missing),
            hint="0 stands for any number; NAME=@FILE.npy reads a file, --params all weights",
        )


def _timed(call: Callable[[], list[np.ndarray]], repeat: int | None) -> list[np.ndarray]:
    """Return the results of the last run. Print the time of the runs."""
    results = call()
    if repeat is None:
        return results
    seconds = []
    for _ in range(repeat):
        started = time.perf_counter()
        results = call()
        seconds.append(time.perf_counter() - started)
    middle, least, most = (_milliseconds(f(seconds)) for f in (statistics.median, min, max))
    say(f"{repeat} runs: median {middle}, fastest {least}, slowest {most}")
    return results


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"
