"""What other libraries have in their modules: what `rlx`, `rlx.nn` and `rlx.train` have in its place."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.ir.suggestions import suggestion
from rlx.ops import other_names, surface
from rlx.ops.vocabulary import modules, training, transforms

_TRAINING = training.OPTIMISERS | training.SCHEDULES | training.LOSSES
_PACKAGE = transforms.TRANSFORMS | transforms.DEVICES | transforms.VALUES
# What stands in the place of a name, by the module that is asked for it. Others are asked where it knows nothing.
MODULES = {
    "": _PACKAGE,
    "nn": modules.LAYERS,
    "nn.init": modules.INITIALISERS,
    "train": _TRAINING,
}


def module_problem(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that a module has not: what stands in its place, or a name of like spelling."""
    names = list(known)
    same = next((n for n in names if n.casefold() == name.casefold()), None)
    call = MODULES[module.partition(".")[2]].get(name) or (f"{module}.{same}" if same else _elsewhere(name))
    return AttributeError(
        f"module '{module}' has no attribute '{name}'{f'; instead: {call}' if call else suggestion(name, names)}"
    )


def _elsewhere(name: str) -> str:
    """What other modules say of the name; or the function of tensors of that name."""
    for table in MODULES.values():
        if name in table:
            return table[name]
    methods = surface.methods()
    call = other_names.called("rlx.ops", name, methods[name]) if name in methods else ""
    return call or other_names.call_for(name, methods).replace("g.", "rlx.ops.")
