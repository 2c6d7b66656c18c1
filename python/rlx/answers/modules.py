"""Names in modules of other libraries, and their counterparts in `rlx`, `rlx.nn`, `rlx.train` and `rlx.linalg`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module

from rlx.answers import names as other_names
from rlx.answers.reader import table
from rlx.ops import surface
from rlx.support.caller import asked_after, is_imported
from rlx.support.suggestions import suggestion

# Tables by the module that is searched first. The other modules are searched if its tables have no entry.
_FILES = {
    "": ("transforms", "devices", "values"),
    "nn": ("nn",),
    "nn.init": ("nn.init",),
    "train": ("optimisers", "schedules", "losses"),
    "linalg": ("linalg",),
    "sparse": ("sparse",),
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


@cache
def counterparts() -> dict[str, dict[str, str]]:
    """Return the counterparts of names, by module."""
    result = {module: table(*(f"package/{file}" for file in files)) for module, files in _FILES.items()}
    return result | {"": other_names.dtypes() | result[""]}


def _within(name: str) -> str:
    """Return the advice for a name that the caller looks up in a module of another library; see `names.within`."""
    if name not in _PLACES:
        return _of_ops(other_names.within(name))
    asked, place = asked_after(name), _PLACES[name]
    return _known(place, asked[-1], dir(import_module(f"rlx.{place}"))) if asked else ""


def _known(place: str, name: str, names: Iterable[str]) -> str:
    """Return a module's counterpart of a name: the table entry, the function of tensors, or a name in another case."""
    module = ".".join(filter(None, ("rlx", place)))
    if name in names:
        return f"{module}.{name}"
    methods, table_of = surface.methods(), counterparts().get(place, {})
    if not table_of.get(name) and place == "nn" and name in methods:
        return other_names.called("rlx.ops", name, methods[name])
    same = next((n for n in names if n.casefold() == name.casefold()), None)
    return table_of.get(name) or (f"{module}.{same}" if same else "")


def _of_ops(call: str) -> str:
    """Return a method call of a graph as a call of a function of `rlx.ops`."""
    return re.sub(r"\bg\.", "rlx.ops.", call)


def _elsewhere(name: str) -> str:
    """Return the advice of other modules for the name, or the function of tensors of that name."""
    for calls in counterparts().values():
        if name in calls:
            return calls[name]
    methods = surface.methods()
    call = other_names.called("rlx.ops", name, methods[name]) if name in methods else ""
    return call or _of_ops(other_names.call_for(name))
