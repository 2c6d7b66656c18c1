"""`rlx-bind-params`: replacement of parameters by constants from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.op.signature import bodies, prepares, read_arguments, read_outputs, sign_function
from rlx.ir.shape import Shape
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import builder_before
from rlx.support.errors import PassError
from rlx.support.suggestions import suggestion
from rlx.weights.formats import open as open_weights


@dataclass(frozen=True)
class BindParams(Pass, name="rlx-bind-params"):
    """Replace parameters by constants with their values, for targets that compile weights into the program."""

    preserves_results = False  # the parameters of the function change

    file: str | None = option(None, "a file of weights: safetensors, .npz or .npy")
    names: tuple[str, ...] = option((), "the parameters to bind; all when empty")

    def run(self, module: mlir.Module) -> None:
        if self.file is None:
            raise PassError(
                f"{self.name}: the values of parameters come from a file", hint="give file=weights.safetensors"
            )
        stored, bound = open_weights(self.file), set[str]()
        for function in bodies(module):
            if not prepares(function):
                params = {a.name: a.shape.dtype for a in read_arguments(function) if a.kind == "param"}
                chosen = [name for name in params if name in self.names or not self.names]
                for name in chosen:
                    if name not in stored:
                        raise PassError(f"{self.name}: {self.file} has no '{name}'{suggestion(name, stored)}")
                bind_params(function, {name: stored[name].of_dtype(params[name]).numpy() for name in chosen})
                bound |= set(params)
        for name in self.names:
            if name not in bound:
                raise PassError(f"{self.name}: there is no parameter '{name}'{suggestion(name, bound)}")


def bind_params(function: mlir.FuncOp, values: Mapping[str, Any]) -> None:
    """Replace parameters of a function by constants, in place.

    Args:
        function: The function, which loses these parameters.
        values: Arrays by name, for all parameters to bind.

    Raises:
        PassError: The shape or dtype of an array differs from that of its parameter.
    """
    arguments, outputs, block = read_arguments(function), read_outputs(function), function.entry_block
    b = builder_before(block.operations[0].operation, BindParams.name)
    kept = list(arguments)
    for i in reversed(range(len(arguments))):
        argument = arguments[i]
        if argument.kind != "param" or argument.name not in values:
            continue
        array = np.asarray(values[argument.name])
        given = Shape(array.shape, array.dtype)
        if given != argument.shape:
            raise PassError(f"{BindParams.name}: param '{argument.name}' is {argument.shape}, its value {given}")
        block.arguments[i].replace_all_uses_with(b.constant(array).value)
        block.erase_argument(i)
        del kept[i]
    sign_function(function, kept, outputs)
