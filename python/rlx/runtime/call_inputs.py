"""`CallInputs`: the check of the inputs of a call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.interface import Argument, argument_array, bind_symbols, check_argument
from rlx.ir.python_values import given_array
from rlx.runtime.device_array import DeviceArray
from rlx.support.errors import Error
from rlx.support.short import join_names
from rlx.support.suggestions import suggestion
from rlx.targets.artifacts.signature import Signature


class CallInputs:
    """The inputs of a function, and the check of the arrays for them.

    Attributes:
        arguments: The inputs, in order.
        check_sizes: Raises an error if the function does not take these sizes of the symbols.
    """

    def __init__(self, signature: Signature, check_sizes: Callable[[Mapping[str, int]], None]):
        self.arguments, self.check_sizes = signature.of_kind("input"), check_sizes
        self._params = {a.name for a in signature.of_kind("param")}
        # Data for checking a call without attribute look-ups: name, dtype, static shape or None.
        self._checks = [
            (a.name, a.shape.dtype.numpy, a.shape.static if a.shape.is_static else None, a) for a in self.arguments
        ]
        self._has_symbols = any(not a.shape.is_static for a in self.arguments)
        self._donates = any(a.donate for a in self.arguments)

    def by_name(self, inputs: Any, named: Mapping[str, Any], what: str = "run") -> Mapping[str, Any]:
        """Return the inputs of a call by name. It may pass them by name, or the only one by its value.

        Args:
            inputs: Arrays by name, or the only input: its value, or a list with this one array. None if there is none.
            named: Inputs that were passed as keywords.
            what: The called method, for the message.

        Raises:
            Error: A value comes without a name and there is not exactly one input, or an input is passed twice.
        """
        if inputs is None:
            return named
        given = inputs if isinstance(inputs, Mapping) else self._single(inputs, named, what)
        if not named:
            return given
        if twice := [name for name in given if name in named]:
            raise Error(f"{what}: input '{twice[0]!s:.60}' is passed twice")
        return {**given, **named}

    def _single(self, value: Any, named: Mapping[str, Any], what: str) -> dict[str, Any]:
        """Return a value without a name by the name of its input: see `by_name`."""
        names = [a.name for a in self.arguments]
        if named and "inputs" in names:  # the name of the method's parameter is also one of an input
            return {"inputs": value}
        if len(names) != 1:
            raise _unnamed(value, names, what)
        is_list = isinstance(value, list | tuple) and len(value) == 1 and _is_array(value[0])
        return {names[0]: value[0] if is_list else value}

    def arrays(self, inputs: Mapping[str, Any], *, for_device: bool = False) -> list[Any]:
        """Return the arrays of a call, in order, checked. Donated device arrays lose their memory.

        Args:
            inputs: Arrays by name.
            for_device: Whether the program accepts arrays on its device unchanged; otherwise all are NumPy arrays.

        Raises:
            Error: An input is missing, unknown, or of the wrong shape or dtype, a donated one is passed twice, or the
                function does not take the sizes. Then none has been donated.
        """
        arrays: list[Any] = []
        on_device: dict[int, DeviceArray] | None = None
        for name, dtype, shape, argument in self._checks:
            try:
                array = inputs[name]
            except (KeyError, TypeError, IndexError):
                raise _missing_input(inputs, argument, self.arguments) from None
            if type(array) is not np.ndarray:
                if type(array) is DeviceArray:
                    if self._donates:
                        on_device = {**(on_device or {}), len(arrays): array}
                    array = array.lent(for_device, f"input '{name}'")
                else:
                    array = given_array(array, argument.shape.dtype, f"input '{name}'")
            if array.dtype != dtype or array.shape != shape:
                if isinstance(array, np.ndarray):
                    array = argument_array(argument, array)
                else:
                    check_argument(argument, array)
            if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
                array = array.copy()
            arrays.append(array)
        if len(inputs) != len(arrays):
            raise _unknown_input(inputs, self.arguments, self._params)
        if self._has_symbols:
            self.check_sizes(self.sizes_of(arrays))
        if self._donates:  # donate only after all checks have passed
            self._donate(arrays, on_device or {}, for_device)
        return arrays

    def sizes_of(self, arrays: Sequence[Any]) -> dict[str, int]:
        """Return the sizes of the symbols, from the arrays of a call.

        Raises:
            ShapeError: A symbol has two sizes.
        """
        return bind_symbols([(a, array.shape) for a, array in zip(self.arguments, arrays, strict=True)])

    def _donate(self, arrays: list[Any], on_device: Mapping[int, DeviceArray], for_device: bool) -> None:
        """Take the memory of donated device arrays, in place.

        Raises:
            Error: Memory that is donated is also passed for another input.
        """
        donated = [i for i, argument in enumerate(self.arguments) if argument.donate]
        for i in donated:
            for j, other in enumerate(arrays):
                same = i in on_device and on_device[i] is on_device.get(j)
                if i != j and (same or _share_memory(arrays[i], other)):
                    names = [self.arguments[k].name for k in (i, j)]
                    raise Error(
                        f"input '{names[0]}' is donated, and input '{names[1]}' has the same memory",
                        hint="pass a copy for one of them: the program may write to a donated array while it reads",
                    )
        for i in donated:
            if i in on_device:
                arrays[i] = on_device[i].given_away(for_device, f"input '{self.arguments[i].name}'")


def _is_array(value: Any) -> bool:
    """Return whether a value is an array, rather than a number or a list of numbers."""
    is_scalar = isinstance(value, np.generic)
    return isinstance(value, DeviceArray) or (
        not is_scalar and (hasattr(value, "__array__") or hasattr(value, "__dlpack__"))
    )


def _unnamed(inputs: Any, names: Sequence[str], what: str) -> Error:
    """Return the error for a value without a name, if there is not exactly one input."""
    if not names:
        return Error(f"{what}: the program has no inputs, got {type(inputs).__name__}")
    first, more = names[:3], ", …" if len(names) > 3 else ""
    if all(name.isidentifier() for name in first):
        call = f"{what}({', '.join(f'{name:.60}=…' for name in first)}{more})"
    else:
        call = f"{what}({{{', '.join(f'{name!r:.60}: …' for name in first)}{more}}})"
    return Error(
        f"{what}: the program has {len(names)} inputs ({join_names(names)}), so inputs must be a mapping of names to "
        f"arrays, got {type(inputs).__name__}",
        hint=f"pass each by its name: {call}",
    )


def _share_memory(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.may_share_memory(a, b)  # exact for contiguous arrays
    return a is b


def _missing_input(inputs: Any, argument: Argument, arguments: Sequence[Argument]) -> Error:
    """Return the error for a missing input."""
    names = [a.name for a in arguments]
    unknown = [name for name in inputs if name not in names]
    close = [name for name in unknown if suggestion(name, [argument.name])]
    other = f"; there is no input {(close or unknown)[0]!r:.60}" if unknown else ""
    meant = suggestion(close[0], [argument.name]) if close else ""
    hint = f"the program takes {join_names(names)}" if unknown and not close else None
    return Error(f"input '{argument.name}' ({argument.shape}) is missing{other}{meant}", hint=hint)


def _unknown_input(inputs: Mapping[str, Any], arguments: Sequence[Argument], params: Collection[str]) -> Error:
    """Return the error for an input that the program does not have."""
    names = [a.name for a in arguments]
    unknown = next(name for name in inputs if not isinstance(name, str) or name not in names)
    kind = " (it is a parameter: use set_param)" if unknown in params else suggestion(str(unknown), names)
    return Error(f"there is no input '{unknown}'{kind}; the program takes {join_names(names)}")
