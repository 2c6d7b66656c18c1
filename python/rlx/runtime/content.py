"""What changes of a compiled program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rlx.targets.protocol import Program


@dataclass(frozen=True)
class Content:
    """All of a `CompiledGraph` that changes. It is replaced as a whole, so that an interrupt leaves the old or the new.

    Attributes:
        weights: Values of the parameters.
        states: What the states get when the program is loaded, where that is not their first value.
        program: The program, once it is loaded.
        proved: Whether the program has been called, and returned what it should.
    """

    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    states: Mapping[str, np.ndarray] = field(default_factory=dict)
    program: Program | None = None
    proved: bool = True
