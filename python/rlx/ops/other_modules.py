"""Names in modules of other libraries, and their counterparts in `rlx`, `rlx.nn` and `rlx.train`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module

from rlx.ir.location import asked_after, is_imported
from rlx.ops import other_names, surface
from rlx.ops.vocabulary import modules, training, transforms
from rlx.support.suggestions import suggestion

_TRAINING = training.OPTIMISERS | training.SCHEDULES | training.LOSSES
_PACKAGE = transforms.TRANSFORMS | transforms.DEVICES | transforms.VALUES
# Counterparts of names, by the module that is searched first. The other modules are searched if it has no entry.
MODULES = {
    "": _PACKAGE,
    "nn": modules.LAYERS,
    "nn.init": modules.INITIALISERS,
    "train": _TRAINING,
}
# Modules of other libraries, and the RLX module with the same purpose.
_PLACES = {
    "initializers": "nn.init",
    **dict.fromkeys(("optim", "optimizers", "lr_scheduler", "schedules", "utils", "optax"), "train"),
}


def module_problem(module: str, name: str, known: Iterable[str]) -> AttributeError | ImportError:
    """Return the error for a name that a module does not have, with its counterpart or a name of similar spelling.

    For `from module import name` it is an `ImportError`, because Python replaces the message of any other error.
    """
    names = list(known)
    call = _within(name) or _known(module.partition(".")[2], name, names) or _elsewhere(name)
    said = f"module '{module}' has no attribute '{name}'{f'; instead: {call}' if call else suggestion(name, names)}"
    return ImportError(said, name=module) if is_imported() else AttributeError(said)


def _within(name: str) -> str:
    """Return the advice for a name that the caller looks up in a module of another library; see `other_names.within`."""
    if name not in _PLACES:
        return _of_ops(other_names.within(name, surface.methods()))
    asked, place = asked_after(name), _PLACES[name]
    return _known(place, asked[-1], dir(import_module(f"rlx.{place}"))) if asked else ""


def _known(place: str, name: str, names: Iterable[str]) -> str:
    """Return a module's counterpart of a name: the table entry, the function of tensors, or a name in another case."""
    module = ".".join(filter(None, ("rlx", place)))
    if name in names:
        return f"{module}.{name}"
    methods = surface.methods()
    if not MODULES[place].get(name) and place == "nn" and name in methods:
        return other_names.called("rlx.ops", name, methods[name])
    same = next((n for n in names if n.casefold() == name.casefold()), None)
    return MODULES[place].get(name) or (f"{module}.{same}" if same else "")


def _of_ops(call: str) -> str:
    """Return a method call of a graph as a call of a function of `rlx.ops`."""
    return re.sub(r"\bg\.", "rlx.ops.", call)


def _elsewhere(name: str) -> str:
    """Return the advice of other modules for the name, or the function of tensors of that name."""
    for table in MODULES.values():
        if name in table:
            return table[name]
    methods = surface.methods()
    call = other_names.called("rlx.ops", name, methods[name]) if name in methods else ""
    return call or _of_ops(other_names.call_for(name, methods))
