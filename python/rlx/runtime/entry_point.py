"""Entry points of a program: compiled functions, and the choice among those for buckets of sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.interface import Output, Requirement
from rlx.runtime.arguments import checked_threads
from rlx.runtime.call_inputs import CallInputs
from rlx.runtime.device_array import DeviceArray
from rlx.support.errors import Error
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.buckets import Buckets, Sizes
from rlx.targets.artifacts.entry import StoredEntry
from rlx.targets.artifacts.signature import Signature
from rlx.targets.cache import DiskCache
from rlx.weights.arrays import keep

if TYPE_CHECKING:
    from rlx.targets.compilation import Compilation


class UnknownEntryPointError(Error, KeyError):
    """A program does not have an entry point of this name."""

    __str__ = Exception.__str__


class CompiledFunction:
    """One compiled function. It has no weights and states: see `SharedData`.

    Attributes:
        artifact: The code and its signature.
        threads: Threads that it may use on the CPU.
        compilation: Its origin; None if it was read from a file.
        cache: The cache for what the back end compiles when it loads the function; None for none.
        for_file: Compiles the artifact that can be saved, if this one cannot.
        inputs: Its inputs.
        params: The names of its parameters.
        states: The names of its states.
    """

    def __init__(
        self,
        artifact: Artifact,
        *,
        threads: int | None = None,
        compilation: Compilation | None = None,
        cache: DiskCache | None = None,
        for_file: Callable[[], Artifact] | None = None,
    ):
        self.artifact, self.threads, self.compilation = artifact, checked_threads(threads), compilation
        self.cache, self.for_file = cache, for_file
        signature = artifact.signature
        requirements = [Requirement.from_json(r) for r in artifact.info.get("requirements", ())]
        self.inputs = CallInputs(signature, partial(_check_requirements, requirements))
        self.params = tuple(a.name for a in signature.of_kind("param"))
        self.states = tuple(a.name for a in signature.of_kind("state"))

    @property
    def saved_artifact(self) -> Artifact:
        """The artifact for a file. A function that calls LAPACK is compiled again without the calls.

        Raises:
            CompileError: The graph cannot be compiled without them.
        """
        return self.artifact if self.for_file is None else self.for_file()

    def checked_compilation(self) -> Compilation:
        """Return the compilation.

        Raises:
            Error: The function was loaded from a file, or its graph has been changed since.
        """
        if self.compilation is None:
            hint = "take what Session.compile gives"
            raise Error("a program from a file does not say what it was made of", hint=hint)
        self.compilation.check_unchanged()
        return self.compilation


@dataclass(frozen=True)
class PaddedCall:
    """A call of a function for a bucket.

    Attributes:
        function: The function.
        arrays: Its inputs, in order, padded.
        outputs: The outputs of the entry point.
        sizes: The real sizes of the bucketed symbols.
    """

    function: CompiledFunction
    arrays: list[Any]
    outputs: Sequence[Output]
    sizes: Mapping[str, int]

    def cut(self, results: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the results without padding."""
        return [_cut(r, o.shape.dims, self.sizes) for r, o in zip(results, self.outputs, strict=True)]


class EntryPoint:
    """A function that users call: compiled once, or for several sizes of some symbols.

    With buckets, a call uses the function for the smallest sizes that hold its inputs. Inputs are padded with zeros at
    the end of the symbols' axes, and outputs are cut to the real sizes.

    Attributes:
        signature: The arguments and outputs, with the symbols of buckets.
        functions: The compiled function for each combination of sizes; `()` without buckets.
        buckets: The sizes; None without buckets.
        inputs: The inputs, with the symbols of buckets.
    """

    def __init__(
        self, signature: Signature, functions: Mapping[Sizes, CompiledFunction], buckets: Buckets | None = None
    ):
        self.signature, self.functions, self.buckets = signature, functions, buckets
        if buckets is None:
            self.inputs = functions[()].inputs
        else:
            self.inputs = CallInputs(signature, partial(_check_bucket_sizes, functions, buckets))

    @classmethod
    def of(cls, function: CompiledFunction) -> EntryPoint:
        """Return an entry point without buckets."""
        return cls(function.artifact.signature, {(): function})

    @classmethod
    def of_stored(cls, stored: StoredEntry, target: str | None = None, threads: int | None = None) -> EntryPoint:
        """Return an entry point of a file, with the programs for this machine.

        Raises:
            Error: This machine cannot run it: see `StoredPrograms.choose`.
        """
        functions = {
            sizes: CompiledFunction(programs.choose(target), threads=threads)
            for sizes, programs in stored.by_sizes.items()
        }
        return cls(stored.signature, functions, stored.buckets)

    @property
    def function(self) -> CompiledFunction | None:
        """The only compiled function; None with buckets."""
        return self.functions[()] if self.buckets is None else None

    def stored(self, others: Sequence[EntryPoint] = ()) -> StoredEntry:
        """Return the entry point as a part of a file.

        Args:
            others: The same entry point for other targets.

        Raises:
            Error: Signatures differ, or two are for the same target and architecture.
        """
        artifacts = {
            sizes: [f.saved_artifact for f in (function, *(other.functions[sizes] for other in others))]
            for sizes, function in self.functions.items()
        }
        if self.buckets is None:
            return StoredEntry.of(artifacts[()])
        return StoredEntry.of_buckets(self.signature, self.buckets, artifacts)

    def padded(self, inputs: Mapping[str, Any], *, lasting: bool = False) -> PaddedCall:
        """Return a call of the function for the bucket of the inputs.

        Args:
            inputs: Arrays by name.
            lasting: Whether the arrays must not change with those of the caller.

        Raises:
            Error: An input is missing, unknown, of the wrong shape or dtype, or larger than the largest bucket.
        """
        assert self.buckets is not None
        arrays = self.inputs.arrays(inputs)
        if lasting:
            arrays = lasting_arrays(self.inputs, inputs, arrays)
        sizes = self.buckets.of_symbols(self.inputs.sizes_of(arrays))
        chosen = self.buckets.choose(sizes)
        padded = {
            a.name: _padded(array, _resized(a.shape.dims, array.shape, self.buckets.named(chosen)))
            for a, array in zip(self.inputs.arguments, arrays, strict=True)
        }
        function = self.functions[chosen]
        return PaddedCall(function, function.inputs.arrays(padded), self.signature.outputs, sizes)


def _check_requirements(requirements: Sequence[Requirement], sizes: Mapping[str, int]) -> None:
    for requirement in requirements:
        requirement.check(sizes)


def _check_bucket_sizes(
    functions: Mapping[Sizes, CompiledFunction], buckets: Buckets, sizes: Mapping[str, int]
) -> None:
    """Check that there is a bucket for some sizes, and that its function takes those of the other symbols.

    Raises:
        Error: There is none, or it does not.
    """
    chosen = buckets.choose(buckets.of_symbols(sizes))
    functions[chosen].inputs.check_sizes(sizes)


def lasting_arrays(inputs: CallInputs, values: Mapping[str, Any], arrays: Sequence[Any]) -> list[Any]:
    """Return the arrays of a call for later: copies, except of those that are donated or on a device.

    Args:
        inputs: The inputs.
        values: The values of the caller.
        arrays: The arrays that `inputs.arrays` returned for them.
    """
    return [
        array if a.donate or type(values[a.name]) is DeviceArray else keep(array)
        for a, array in zip(inputs.arguments, arrays, strict=True)
    ]


def _resized(dims: Sequence[Dim], shape: Sequence[int], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape with other sizes for the dimensions that are a bucketed symbol."""
    return tuple(sizes.get(str(d), size) for d, size in zip(dims, shape, strict=True))


def _padded(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if array.shape == shape:
        return array
    result = np.zeros(shape, array.dtype)
    result[tuple(map(slice, array.shape))] = array
    return result


def _cut(array: np.ndarray, dims: Sequence[Dim], sizes: Mapping[str, int]) -> np.ndarray:
    wanted = _resized(dims, array.shape, sizes)
    return array if array.shape == wanted else array[tuple(map(slice, wanted))].copy()
