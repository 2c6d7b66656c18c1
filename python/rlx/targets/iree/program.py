"""The running half of the IREE back end. It needs IREE's runtime, but not its compiler.

The compiling half is `backend`. This module must not import MLIR or a compiler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rlx.ir.interface import Argument
from rlx.ir.shape import Shape
from rlx.support.errors import ExecutionError
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.fields import Check, boolean, integer, list_of, name, optional
from rlx.targets.artifacts.signature import Signature, output
from rlx.targets.hashes import fingerprint
from rlx.targets.iree import targets
from rlx.targets.iree.abi import ArgumentType, TensorType
from rlx.targets.iree.cpu import Cpu
from rlx.targets.iree.devices import check_features, device, devices
from rlx.targets.iree.executable import IreeExecutable, IreeFunction
from rlx.targets.iree.names import exported_name, state_getter, state_setter
from rlx.targets.iree.targets import Target, device_names, target
from rlx.targets.protocol import LoadedProgram

# Below this number of operations the threads of local-task cost more than they save (about 15 µs per call).
PARALLEL_FLOPS = 20_000_000


_LARGEST_FLOPS = 10**300
DESCRIPTION_KEY = "rlx.described"


def info_fields() -> dict[str, Check]:
    """Return the checks of an artifact's `info` entries. The flags are only for information."""
    return {
        "flops": integer(0, _LARGEST_FLOPS),
        "borrow": boolean,
        # Parameters of the program that only its other functions have.
        "others": list_of(output),
        "flags": list_of(name),
        "cpu": optional(Cpu.from_json),
        "iree": name,
    }


def description(signature: Signature, borrow: bool, requirements: Sequence[Sequence[str | None]]) -> str:
    """Return a hash of the facts in an artifact that make a call of the program safe: types, access and sizes of arguments."""
    # Texts for users, such as meanings and locations of requirements, are not included.
    expressions = sorted({str(requirement[0]) for requirement in requirements})
    return fingerprint(json.dumps([signature.to_json(), borrow, expressions], sort_keys=True))


class IreeProgram:
    """A loaded artifact: its function, and its states.

    Args:
        artifact: The artifact.
        parameters: The weights by name, of all functions of the program.
        driver: The driver that runs it.
        threads: The number of threads.
        takes_empty: Whether inputs may be empty.
        executable: The program, if it is loaded with these weights; several artifacts may be functions of one program.
    """

    def __init__(
        self,
        artifact: Artifact,
        parameters: Mapping[str, np.ndarray],
        driver: str,
        threads: int | None,
        *,
        takes_empty: bool = True,
        executable: IreeExecutable | None = None,
    ):
        signature = artifact.signature
        params = signature.of_kind("param")
        self.executable = executable or IreeExecutable(
            artifact.program,
            driver=driver,
            parameters=_with_others(artifact, parameters),
            parameter_types={a.name: _tensor_type(a.shape) for a in params},
            threads=threads,
        )
        self.in_host_memory = self.executable.local  # see `protocol.KeepingResults`
        borrow, requirements = artifact.info["borrow"], artifact.info["requirements"]
        if self.executable.note(exported_name(signature.name), DESCRIPTION_KEY) != description(
            signature, borrow, requirements
        ):
            raise ExecutionError("the program is another one than the artifact describes", hint="compile it again")
        self.states = {a.name: a for a in signature.of_kind("state")}
        self._getters: dict[str, IreeFunction] = {}  # created on demand
        self._setters: dict[str, IreeFunction] = {}
        # A result may share the memory of a state, which the next run overwrites.
        function = self.executable.function(
            exported_name(signature.name),
            [_argument_type(a, borrow) for a in signature.of_kind("input")],
            [_tensor_type(o.shape) for o in signature.outputs],
            copy_results=bool(self.states),
        )
        self.call: Callable[[Sequence[np.ndarray]], list[np.ndarray]] = function
        if not takes_empty and any(not a.shape.is_static for a in signature.of_kind("input")):
            self.call = _refusing_empty(function, [a.name for a in signature.of_kind("input")])

    def read_state(self, name: str) -> np.ndarray:
        """A copy of the current value of a state."""
        return self._getter(name)([])[0]

    def write_state(self, name: str, value: np.ndarray) -> None:
        """Set the value of a state."""
        self._setter(name)([value])

    def take_state(self, name: str, other: object, /) -> bool:
        """Set a state to the buffer of another program on the same device: see `protocol.TakingStates`."""
        if isinstance(other, IreeProgram) and other.executable is self.executable:
            return True  # functions of one program have the same states
        if not isinstance(other, IreeProgram) or other.executable.device is not self.executable.device:
            return False
        self._setter(name).pass_on(other._getter(name))
        return True

    def _getter(self, name: str) -> IreeFunction:
        if name not in self._getters:
            type_ = _tensor_type(self.states[name].shape)
            self._getters[name] = self.executable.function(state_getter(name), [], [type_], copy_results=True)
        return self._getters[name]

    def _setter(self, name: str) -> IreeFunction:
        if name not in self._setters:
            shape = self.states[name].shape
            type_ = ArgumentType(shape.dtype.numpy, shape.static)
            self._setters[name] = self.executable.function(state_setter(name), [type_], [])
        return self._setters[name]


def _refusing_empty(function: IreeFunction, names: Sequence[str]) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """Return a function that rejects empty inputs: some devices have wrong results or unclear errors (`empty-tensors`)."""

    def call(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        for input_name, array in zip(names, arrays, strict=True):
            if not array.size:
                raise ExecutionError(
                    f"input '{input_name}' is empty, {list(array.shape)}, which this device does not take"
                )
        return function(arrays)

    return call


def _with_others(artifact: Artifact, parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return weights, with zeros for the parameters of other functions of the program that are absent.

    These functions cannot run before their weights are set, and then the program is loaded again.
    """
    others = [output(entry, "others") for entry in artifact.info["others"]]
    return {**{o.name: np.zeros(o.shape.static, o.shape.dtype.numpy) for o in others}, **parameters}


def _sizes(shape: Shape) -> tuple[int | None, ...]:
    return tuple(d if type(d) is int else None for d in shape.dims)


def _tensor_type(shape: Shape) -> TensorType:
    return TensorType(shape.dtype.numpy, _sizes(shape))


def _argument_type(argument: Argument, borrow: bool) -> ArgumentType:
    access = "donate" if argument.donate else "borrow" if borrow else "copy"
    return ArgumentType(argument.shape.dtype.numpy, _sizes(argument.shape), access)


def choose_driver(target: Target, flops: int, threads: int | None) -> str:
    """Return the driver of the runtime. For the CPU, it has threads only if there is enough work."""
    if "local-task" not in target.drivers:
        return target.drivers[0]
    return "local-sync" if threads == 1 or flops < PARALLEL_FLOPS else "local-task"


def load(artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None) -> IreeProgram:
    """Load an artifact on its device.

    Raises:
        ExecutionError: The device does not exist, this machine's CPU lacks instructions that the code needs, or a parameter is
            missing or has the wrong type.
    """
    return load_beside(artifact, parameters, threads, None)


def load_beside(
    artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None, other: LoadedProgram | None
) -> IreeProgram:
    """Load an artifact like `load`, as a function of a program that may be loaded already: see `protocol.JointRuntime`."""
    check_cpu(artifact)
    target = targets.target(artifact.target, artifact.arch)
    if target.features:
        check_features(target.drivers[0], target.features)
    driver = choose_driver(target, artifact.info["flops"], threads)
    executable = other.executable if isinstance(other, IreeProgram) else None
    return IreeProgram(artifact, parameters, driver, threads, takes_empty=target.takes_empty, executable=executable)


def check_cpu(artifact: Artifact) -> None:
    """Check that this machine's CPU can run a program.

    Raises:
        ExecutionError: It cannot.
    """
    if (cpu := artifact.info["cpu"]) is not None:
        Cpu.from_json(cpu).check(f"the program {artifact.signature.name}")


def lacks(artifact: Artifact) -> str | None:
    """Return the reason why this machine cannot run a program; None if no reason is known."""
    if (cpu := artifact.info["cpu"]) is not None:
        return Cpu.from_json(cpu).lacks()
    driver = targets.target(artifact.target, artifact.arch).drivers[0]
    try:
        device(driver)
    except ExecutionError as problem:
        return problem.message
    return None


def rank(artifact: Artifact) -> int:
    """Return the rank of a program among those for one device that this machine can run. A higher rank uses more features."""
    cpu = artifact.info["cpu"]
    return 0 if cpu is None else len(cpu["features"])


__all__: Sequence[str] = [
    "IreeProgram",
    "check_cpu",
    "device_names",
    "devices",
    "info_fields",
    "lacks",
    "load",
    "load_beside",
    "rank",
    "target",
]
