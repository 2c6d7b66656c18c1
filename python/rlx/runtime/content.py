"""Mutable content of a compiled program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rlx.targets.protocol import LoadedProgram


@dataclass(frozen=True)
class Content:
    """The mutable part of a `CompiledGraph`. It is replaced as a whole, so that an interrupt leaves the old or the new one.

    Attributes:
        weights: Values of the parameters.
        states: Values for the states when the program is loaded, if they differ from the initial ones.
        program: The program, once it is loaded.
        proved: Whether the program has been called, and returned valid results.
    """

    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    states: Mapping[str, np.ndarray] = field(default_factory=dict)
    program: LoadedProgram | None = None
    proved: bool = True
