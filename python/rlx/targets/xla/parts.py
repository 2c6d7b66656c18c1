"""Programs of a lowered module: the entry function, and the function that computes weights."""

from __future__ import annotations

from rlx import mlir
from rlx.ir.op.signature import bodies, find_function, functions, prepares, read_arguments
from rlx.passes.pipeline import PipelineStep
from rlx.passes.runner import Instrument
from rlx.targets.xla.pipeline import ENTRY


def as_program(module: mlir.Module, function: mlir.FuncOp) -> mlir.Module:
    """A new module that holds a copy of one function of a module, called `main`, and the attributes of the module."""
    ir = mlir.ir
    with mlir.entered():
        program = ir.Module.create(loc=function.location)
        for name, value in module.operation.attributes.items():
            if name != "sym_name":
                program.operation.attributes[name] = value
        attributes = function.operation.clone(ir.InsertionPoint(program.body)).attributes
        attributes["sym_name"] = ir.StringAttr.get(ENTRY)
        if "sym_visibility" in attributes:
            del attributes["sym_visibility"]
    return program


def entry_of(lowered: mlir.Module, entry: str) -> mlir.Module:
    """The program of a lowered module, which has been renamed if it is the only public function.

    Args:
        lowered: The module.
        entry: The name that the function had at LIR.
    """
    names = [function.name.value for function in functions(lowered)]
    return as_program(lowered, find_function(lowered, entry if entry in names else ENTRY))


class LoweredParts(Instrument):
    """The programs of a module, and the names of their arguments, which StableHLO does not have: it observes the passes.

    Args:
        entry: The name of the entry function at LIR.

    Attributes:
        main: The program that each call runs.
        arguments: The names of its arguments.
        weights: The program that runs once, when it is loaded, and gives the last arguments of `main`; None if there is none.
        prepared: The names of its arguments.
    """

    main: mlir.Module
    weights: mlir.Module | None = None

    def __init__(self, entry: str):
        self.entry = entry
        self.prepared: list[str] = []

    def before(self, step: PipelineStep, module: mlir.Module) -> None:
        # The last call is before the pass that lowers the functions, where they are as that pass finds them.
        self._arguments = {f.name.value: [a.name for a in read_arguments(f)] for f in bodies(module)}
        self._weights = {prepares(f): f.name.value for f in bodies(module)}

    def take(self, lowered: mlir.Module) -> None:
        """Take the programs from the module after the passes."""
        self.main, self.arguments = entry_of(lowered, self.entry), self._arguments[self.entry]
        if (name := self._weights.get(self.entry)) is not None:
            self.weights, self.prepared = as_program(lowered, find_function(lowered, name)), self._arguments[name]
