"""Checks that a back end follows `protocol.py`. An error names the package of the back end."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx.support.errors import CompileError, Error, ExecutionError
from rlx.support.guards import is_array, is_iterable, is_mapping
from rlx.support.traces import raised_at
from rlx.targets.artifacts.fields import record
from rlx.targets.protocol import Compiled, Compiler, Target

if TYPE_CHECKING:
    from rlx.ir.interface import Output
    from rlx.ir.shape import Shape

# The types of target attributes whose misuse would otherwise go unnoticed, each with its description for messages.
_KINDS: dict[str, tuple[Any, str]] = {
    "name": (str, "a string"),
    "arch": (str, "a string"),
    "pipeline": (str, "the text of a pipeline"),
    "lowering": (Callable, "a function of the level of optimisation"),
}


def functions(protocol: type) -> list[str]:
    """The names of the functions of a protocol."""
    return [name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"]


def check_functions(compiler: Any, protocol: type) -> None:
    """Check that a back end has the functions of a protocol, with compatible signatures.

    Raises:
        Error: A function is missing, or takes other arguments.
    """
    names = functions(protocol)
    lacking = [name for name in names if not callable(getattr(compiler, name, None))]
    if lacking:
        raise Error(f"it has no {', '.join(lacking)}, which every {protocol.__name__} has")
    for name in names:
        declared = list(inspect.signature(getattr(protocol, name)).parameters.values())[1:]
        try:
            signature = inspect.signature(getattr(compiler, name))
        except (TypeError, ValueError):  # functions in other languages have no signature
            continue
        by_name = {p.name: p for p in declared if p.kind is p.POSITIONAL_OR_KEYWORD}
        by_place = [p for p in declared if p.kind is p.POSITIONAL_ONLY]
        try:
            signature.bind(*by_place, *by_name)
            signature.bind(*by_place, **by_name)
            signature.bind(*by_place, *(n for n, p in by_name.items() if p.default is p.empty))
        except TypeError:
            wanted = ", ".join(map(str, (p.replace(annotation=p.empty) for p in declared)))
            raise Error(f"its {name}{signature} must be {name}({wanted})") from None


def names_of(given: Any, what: str) -> tuple[str, ...]:
    """Return the names declared by a back end, which must be a collection of strings in lower case.

    Raises:
        Error: The value is something else, such as one string.
    """
    if isinstance(given, str) or not is_iterable(given):
        raise Error(f"{what} must return a tuple of names, got {given!r:.60}")
    names = tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise Error(f"the name of a target must be a string, got {name!r:.60}")
        if not name or name != name.lower():
            raise Error(f"the name of a target is in lower case, not {name!r}")
    return names


@contextlib.contextmanager
def calling(backend: object, what: str, error: type[Error] = CompileError) -> Generator[None]:
    """Call a function of a back end in this context. Its exceptions become errors that name the back end.

    Raises:
        Error: The function raised an exception that is neither an RLX error nor a system error.
    """
    try:
        yield
    except (Error, OSError, MemoryError):
        raise
    except Exception as problem:
        message = f"{backend}: {what} raised {type(problem).__name__}: {problem}"
        raise error(message, hint=raised_at(problem)) from problem


def check_target(backend: object, target: Any, name: str) -> None:
    """Check that a target has all attributes of the protocol.

    Raises:
        CompileError: An attribute is missing, or has the wrong type.
    """
    members = [name for name in vars(Target) if name[0] != "_"]
    lacking = [member for member in members if not hasattr(target, member)]
    if lacking:
        raise CompileError(f"{backend}: its target '{name}' has no {', '.join(lacking)}, which every Target has")
    for member in members:
        value, (kind, described) = getattr(target, member), _KINDS.get(member, (object, ""))
        if not isinstance(value, kind):
            raise CompileError(f"{backend}: {member} of its target '{name}' must be {described}, got {value!r:.60}")


def check_lowering(backend: object, name: str, lowering: Any) -> None:
    """Check that `Target.lowering` returned text.

    Raises:
        CompileError: It is something else.
    """
    if not isinstance(lowering, str):
        message = f"{backend}: lowering of its target '{name}' must return the text of a pipeline, got {lowering!r:.60}"
        raise CompileError(message)


def check_compiled(backend: object, compiled: Any) -> None:
    """Check that `compile_program` returned a program.

    Raises:
        CompileError: It returned something else.
    """
    if not isinstance(compiled, Compiled):
        raise CompileError(f"{backend}: compile_program must return a Compiled, got {type(compiled).__name__}")
    if not isinstance(compiled.program, bytes):
        raise CompileError(f"{backend}: the program must be bytes, got {type(compiled.program).__name__}")
    if not is_mapping(compiled.info):
        raise CompileError(f"{backend}: the info of a program must be a mapping, got {type(compiled.info).__name__}")


def check_info(backend: object, compiler: Compiler, info: Mapping[str, Any]) -> None:
    """Check that `info` has the entries declared by `info_fields`. A file with other entries could not be loaded.

    Raises:
        CompileError: The entries differ, or are not JSON values.
    """
    try:
        record(compiler.info_fields())(json.loads(json.dumps(dict(info), allow_nan=False)), "info")
    except Error as problem:
        raise CompileError(
            f"{backend}: what it says of a program does not fit its info_fields: {problem.message}"
        ) from None
    except (TypeError, ValueError) as problem:
        raise CompileError(f"{backend}: what it says of a program is not JSON: {problem}") from None


def check_results(backend: object, results: Any, outputs: Sequence[Output]) -> None:
    """Check that the first call of a program returned an array for each output, of its dtype and shape.

    Args:
        backend: The back end, for messages.
        results: The value that the call returned.
        outputs: The outputs of the program.

    Raises:
        ExecutionError: The results do not match the outputs.
    """
    if type(results) is not list:
        raise ExecutionError(f"{backend}: its program must return a list of arrays, got {type(results).__name__}")
    if len(results) != len(outputs):
        raise ExecutionError(f"{backend}: its program returned {len(results)} arrays for {len(outputs)} outputs")
    for output, result in zip(outputs, results, strict=True):
        if not is_array(result) or not _fits(result, output.shape):
            got = f"{result.dtype}{list(result.shape)}" if is_array(result) else type(result).__name__
            raise ExecutionError(f"{backend}: its program must return {output.shape} for '{output.name}', got {got}")


def _fits(array: Any, shape: Shape) -> bool:
    sizes_fit = all(type(d) is not int or d == size for d, size in zip(shape.dims, array.shape, strict=False))
    return array.dtype == shape.dtype.numpy and array.ndim == shape.rank and sizes_fit
