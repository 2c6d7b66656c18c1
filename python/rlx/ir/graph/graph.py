"""`Graph`: a function under construction, in a separate module."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from rlx import mlir
from rlx.ir.checks import check_name, check_string
from rlx.ir.graph.arguments import CarriesValues, check_fits, declared, parameter
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.exports import Exports
from rlx.ir.interface import Argument, Output
from rlx.ir.location import caller_location, describe
from rlx.ir.op import registry
from rlx.ir.op.signature import (
    STAGES,
    find_function,
    initial_value,
    mesh_of,
    read_arguments,
    read_outputs,
    set_mesh,
    sign_function,
    stage_of,
)
from rlx.ir.python_values import with_dtype
from rlx.ir.shape import ShapeLike
from rlx.ir.sharding import Mesh
from rlx.parts import BLOCK_MODULES
from rlx.support.caller import caller_place
from rlx.support.errors import Error, ShapeError, StageError
from rlx.support.guards import is_iterable, is_mapping

if TYPE_CHECKING:
    from rlx.blocks.graph_module import GraphModule


class Graph(Exports, CarriesValues, Builder):
    """A tensor program: one function whose arguments are inputs, parameters and states.

    Every op is a method (see the op reference); tensors come first, other arguments are passed by keyword.

    Args:
        name: Name of the function.
        stage: `"hir"` (blocks allowed), `"mir"` or `"lir"`; kept as a module attribute.
        mesh: The devices that the shardings of arguments and of `shard` refer to.
    """

    def __init__(self, name: str = "main", *, stage: str = "mir", mesh: Mesh | None = None):
        ir = mlir.ir
        check_string(stage, "stage")
        if stage not in STAGES:
            raise StageError(f"stage must be one of {', '.join(STAGES)}, got {stage!r:.60}")
        self.name = name
        with mlir.entered():
            module = ir.Module.create(loc=caller_location())
            module.operation.attributes["rlx.stage"] = ir.StringAttr.get(stage)
            function = mlir.dialect("func").FuncOp(
                _symbol(name), ((), ()), ip=ir.InsertionPoint(module.body), loc=caller_location()
            )
            function.add_entry_block()
            end = mlir.dialect("func").ReturnOp([], ip=ir.InsertionPoint(function.entry_block))
        self._adopt(module, function)
        super().__init__(ir.InsertionPoint(end.operation))
        self.mesh = mesh

    def _adopt(self, module: mlir.Module, function: mlir.FuncOp) -> None:
        self._module, self._function = module, function
        self._arguments = read_arguments(function)
        self._outputs = read_outputs(function)
        # Arguments and results are written into the module when it is first requested. Writing each one immediately
        # would take quadratic time and memory for types. Until then, `_unwritten` holds the results; afterwards it is
        # None.
        self._unwritten: list[mlir.Value] | None = list(self._terminator().operands)
        self._returned_at = self._terminator().location
        self._places = {a.name: i for i, a in enumerate(self._arguments)}
        self._updated = {o.updates for o in self._outputs if o.updates is not None}
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(count)
        self._weights: dict[str, Any] = {}

    @classmethod
    def from_module(cls, module: mlir.Module, entry: str | None = None) -> Graph:
        """Return a graph for an existing module: parsed text, or the result of a pass.

        Args:
            module: A builtin module.
            entry: Name of the function; None takes the first public one.

        Raises:
            Error: There is no such function, it has no body, or its arguments are not tensors.
        """
        self = cls._of_new(module, entry)
        self._unwritten = None
        return self

    @classmethod
    def _of_new(cls, module: mlir.Module, entry: str | None) -> Graph:
        """Return a graph for a module that is not shared."""
        self = cls.__new__(cls)
        function = find_function(module, entry)
        if function.is_external:
            raise Error(f"function '{function.name.value}' has no body", location=describe(function.location))
        self.name = function.name.value
        self._adopt(module, function)
        block = function.entry_block
        Builder.__init__(self, mlir.ir.InsertionPoint(block.operations[len(block.operations) - 1]))
        return self

    @classmethod
    def define(cls, name: str, build: Callable[[Any], Any]) -> GraphModule:
        """Build a module at HIR with a function: see `GraphModule.define`."""
        return importlib.import_module(BLOCK_MODULES).GraphModule.define(name, build)

    def emit(self, name: str, operands: Sequence[Any], /, **attributes: Any) -> Any:
        if registry.card(name).spec.stage == "hir" and self.stage != "hir":
            raise StageError(
                f"rlx.{name} is a block, and the graph '{self.name}' is at stage {self.stage}",
                location=describe(self.location),
                hint='build it with rlx.Graph(name, stage="hir") or rlx.Graph.define, and lower it; x @ w + b is linear',
            )
        return super().emit(name, operands, **attributes)

    @property
    def module(self) -> mlir.Module:
        """The module that contains the function."""
        self._write_down()
        return self._module

    @property
    def function(self) -> mlir.FuncOp:
        """The function itself."""
        self._write_down()
        return self._function

    # --- arguments --------------------------------------------------------------------------------

    def input(
        self, name: str, shape: ShapeLike, dtype: object = None, *, donate: bool = False, sharding: Any = None
    ) -> Tensor:
        """Add a tensor that the caller passes in every run.

        Args:
            name: Unique among the graph's arguments.
            shape: Sizes or symbol names.
            dtype: Element type; f32 when absent.
            donate: The caller no longer uses the buffer, so its memory may be reused for results.
            sharding: For each dimension, the mesh axis that it is sharded over, None, or a tuple of axes.

        Raises:
            ShapeError: The sharding does not fit the mesh.
        """
        if not isinstance(donate, bool):
            raise Error(f"input '{name}': donate is True or False, not {donate!r:.60}")
        return self.add_argument(replace(declared("input", name, shape, dtype, sharding, self.mesh), donate=donate))

    def param(
        self,
        name: str,
        shape: ShapeLike,
        dtype: object = None,
        *,
        value: Any = None,
        sharding: Any = None,
        trainable: bool = True,
    ) -> Tensor:
        """Add a weight, which is bound by name once before the first run.

        Args:
            name: Unique among the graph's arguments.
            shape: Sizes or symbol names.
            dtype: Element type; f32 when absent.
            value: The value of the parameter, if known: an array, which must not be changed later, or a `Weight` of a
                file. It is the default value, see `weights`.
            sharding: As for `input`.
            trainable: Whether training steps train the parameter by default. A running mean, for example, is not
                trained.

        Raises:
            ShapeError: The value has a different shape or dtype, or the sharding does not fit the mesh.
        """
        argument = parameter(declared("param", name, shape, dtype, sharding, self.mesh), trainable)
        value = with_dtype(value, argument.shape.dtype)
        if value is not None:
            check_fits(argument, value)
        tensor = self.add_argument(argument)
        if value is not None:
            self._weights[name] = value
        return tensor

    def state(
        self, name: str, shape: ShapeLike, dtype: object = None, *, init: float = 0, sharding: Any = None
    ) -> Tensor:
        """Add a tensor that stays on the device between runs. `update` sets its next value.

        Args:
            name: Unique among the graph's arguments.
            shape: Static sizes.
            dtype: Element type; f32 when absent.
            init: The value of every element before the first run.
            sharding: As for `input`.

        Raises:
            ShapeError: A size is a symbol, the dtype cannot hold `init`, or the sharding does not fit the mesh.
        """
        argument = declared("state", name, shape, dtype, sharding, self.mesh)
        location = caller_place()
        if not argument.shape.is_static:
            raise ShapeError(
                f"state '{name}' must have sizes that are known, got {argument.shape}",
                location=location,
                hint="give the largest size that is needed, and the size in use as an input",
            )
        try:
            value = initial_value(init, argument.shape.dtype)
        except Error as problem:
            raise ShapeError(f"state '{name}': {problem.message}", location=location, hint=problem.hint) from None
        return self.add_argument(replace(argument, init=value))

    def update(self, state: Tensor, value: Tensor) -> None:
        """Set the value that a state has in the next run.

        Raises:
            ShapeError: `state` is not a state of this graph, or shapes or dtypes differ.
        """
        location = caller_place()
        name = self.name_of(state.value) if isinstance(state, Tensor) else None
        argument = self._arguments[self._places[name]] if name in self._places else None
        if argument is None or argument.kind != "state" or state.builder is not self:
            raise ShapeError(f"update: {state!r} is not a state of this graph", location=location)
        if self.check_operand(value, "value") and value.shape != argument.shape:
            raise ShapeError(f"update: state '{name}' is {argument.shape}, the value {value.shape}", location=location)
        if argument.name in self._updated:
            raise Error(f"update: state '{name}' is updated twice", location=location)
        self._return([*self._outputs, Output(f"next_{name}", argument.shape, name)], [*self._returned(), value.value])
        self._updated.add(argument.name)

    def add_argument(self, argument: Argument) -> Tensor:
        """Add an argument of any kind.

        Raises:
            Error: Its name is empty or taken.
        """
        check_name(argument.name, "an argument's name")
        if argument.name in self._places:
            raise Error(f"the graph has an argument '{argument.name}' already", location=caller_place())
        value = self._function.entry_block.add_argument(argument.shape.type, caller_location())
        self._places[argument.name] = len(self._arguments)
        self._arguments.append(argument)
        if self._unwritten is None:
            sign_function(self._function, self._arguments, self._outputs)
        return Tensor(self, value)

    def new_name(self, prefix: str) -> str:
        """Return the next of `prefix0`, `prefix1`, … that is not the name of an argument."""
        names = (f"{prefix}{number}" for number in self._numbers[prefix])
        return next(name for name in names if name not in self._places)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Inputs, parameters and states, in the order of the function's arguments."""
        return tuple(self._arguments)

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return tuple(a for a in self._arguments if a.kind == "input")

    @property
    def params(self) -> tuple[Argument, ...]:
        return tuple(a for a in self._arguments if a.kind == "param")

    @property
    def states(self) -> tuple[Argument, ...]:
        return tuple(a for a in self._arguments if a.kind == "state")

    def argument(self, name: str) -> Tensor:
        """Return the tensor of an argument.

        Raises:
            Error: There is no argument of that name.
        """
        check_string(name, "an argument's name")
        if name in self._places:
            return Tensor(self, self._function.entry_block.arguments[self._places[name]])
        known = ", ".join(a.name for a in self._arguments)
        raise Error(f"the graph has no argument '{name}'; it has {known or 'none'}")

    def is_weight(self, value: mlir.Value) -> bool:
        if isinstance(value, mlir.BlockArgument) and value.owner == self._function.entry_block:
            return self._arguments[value.arg_number].kind != "input"
        return False

    def name_of(self, value: mlir.Value) -> str:
        if isinstance(value, mlir.BlockArgument) and value.owner == self._function.entry_block:
            return self._arguments[value.arg_number].name
        return value.get_name()

    # --- outputs ----------------------------------------------------------------------------------

    def set_outputs(self, outputs: Iterable[Tensor] | Mapping[str, Tensor] | Tensor) -> None:
        """Set the outputs of the graph.

        Args:
            outputs: Tensors, or tensors by name. Unnamed outputs are called `output0`, `output1`, ….

        Raises:
            Error: An output is not a tensor of this graph, or its name is not valid. The outputs are then unchanged.
        """
        if isinstance(outputs, Tensor):
            outputs = [outputs]
        if not is_iterable(outputs) or isinstance(outputs, str):
            raise ShapeError(
                f"set_outputs takes tensors, or tensors by name, got {type(outputs).__name__}",
                location=caller_place(),
            )
        named: list[tuple[Any, Any]] = (
            list(outputs.items()) if is_mapping(outputs) else [(f"output{i}", o) for i, o in enumerate(outputs)]
        )
        for name, output in named:
            check_name(name, "an output's name")
            if not isinstance(output, Tensor) or output.builder is not self:
                raise ShapeError(
                    f"set_outputs: output '{name}' must be a tensor of this graph, got {type(output).__name__}",
                    location=caller_place(),
                )
            try:
                self.check_operand(output, name)
            except ShapeError as problem:
                raise self.problem_at(f"set_outputs: {problem.message}") from None
        updates = [(o, v) for o, v in zip(self._outputs, self._returned(), strict=True) if o.updates]
        entries = [*((Output(name, t.shape), t.value) for name, t in named), *updates]
        self._return([o for o, _ in entries], [v for _, v in entries])

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The results that a caller sees, in order."""
        return tuple(o for o in self._outputs if o.updates is None)

    @property
    def results(self) -> tuple[Output, ...]:
        """All results of the function: outputs and state updates, in order."""
        return tuple(self._outputs)

    @property
    def output_tensors(self) -> list[Tensor]:
        """The tensors of the outputs, in order."""
        return [Tensor(self, v) for o, v in zip(self._outputs, self._returned(), strict=True) if o.updates is None]

    def _terminator(self) -> mlir.Operation:
        operations = self._function.entry_block.operations
        return operations[len(operations) - 1].operation

    def _returned(self) -> list[mlir.Value]:
        return list(self._terminator().operands) if self._unwritten is None else self._unwritten

    def _return(self, outputs: list[Output], values: list[mlir.Value]) -> None:
        self._outputs, self._returned_at = outputs, caller_location()
        if self._unwritten is None:
            self._write(values)
        else:
            self._unwritten = values

    def _write_down(self) -> None:
        """Write arguments and results into the module. From now on, changes are written immediately."""
        values = self._unwritten
        if values is not None:
            with mlir.entered():
                if self._unwritten is values:  # otherwise another thread has already written them
                    self._write(values)
                    self._unwritten = None

    def _write(self, values: list[mlir.Value]) -> None:
        old = self._terminator()
        if values != list(old.operands):
            with mlir.entered():
                place = mlir.ir.InsertionPoint(old)
                end = mlir.dialect("func").ReturnOp(values, ip=place, loc=self._returned_at)
            old.erase()
            self._points[0] = mlir.ir.InsertionPoint(end.operation)
        sign_function(self._function, self._arguments, self._outputs)

    # --- the whole graph --------------------------------------------------------------------------

    @property
    def stage(self) -> str:
        """`"hir"`, `"mir"` or `"lir"`."""
        return module_stage(self._module)

    @property
    def mesh(self) -> Mesh | None:
        """The devices that shardings refer to, stored as the module attribute `rlx.mesh`."""
        return mesh_of(self._module.operation)

    @mesh.setter
    def mesh(self, mesh: Mesh | None) -> None:
        set_mesh(self._module.operation, mesh, self._arguments)

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols in the shapes of the arguments."""
        return frozenset[str]().union(*(a.shape.symbols for a in self._arguments))

    def verify(self) -> None:
        """Check the whole module.

        Raises:
            VerificationError: An op breaks a rule; the message has the location and the rule.
        """
        from rlx.ir.text.modules import verify_module

        verify_module(self.module)

    def clone(self) -> Graph:
        """Return an independent copy."""
        with mlir.entered():
            copy = Graph._of_new(self.module.operation.clone().opview, self.name_symbol)
        copy.take_weights(self)
        return copy

    @property
    def name_symbol(self) -> str:
        return self._function.name.value


def _symbol(name: str) -> str:
    check_name(name, "a graph's name")
    return re.sub(r"[^A-Za-z0-9_.$-]", "_", name)


def module_stage(module: mlir.Module) -> str:
    """Return the stage that a module declares; MIR by default."""
    return stage_of(module.operation) or "mir"
