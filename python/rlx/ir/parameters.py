"""Values of parameters that users pass by name, as dictionaries or PyTorch state dicts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rlx.support.errors import Error
from rlx.support.short import join_names
from rlx.support.suggestions import suggestion

_COUNT = "num_batches_tracked"  # the number of batches that a PyTorch batch norm has processed


def named_values(values: Mapping[Any, Any], known: Collection[str], what: str = "") -> dict[str, Any]:
    """Return values by name, after checking that the graph has each name.

    The batch counts of batch norms in a PyTorch state dict are dropped, because no computation uses them.

    Args:
        values: Arrays by name.
        known: The known names.
        what: Prefix of the message.

    Raises:
        Error: A name is unknown.
    """
    for name in values:
        if name not in known and not is_count(name):
            raise unknown_parameter(name, known, what)
    return {name: value for name, value in values.items() if name in known}


def is_count(name: object) -> bool:
    """Whether a name in a state dict is the batch count of a batch norm."""
    return isinstance(name, str) and name.rpartition(".")[2] == _COUNT


def unknown_parameter(name: object, known: Collection[str], what: str = "") -> Error:
    """Return the error for a name that is not a parameter."""
    return Error(
        f"{what}there is no parameter '{name!s:.60}'{suggestion(str(name), known)}; there are {join_names(known) or 'none'}",
        hint="to take from a mapping what there is and leave the rest: rlx.weights.Weights.of(mapping)",
    )
