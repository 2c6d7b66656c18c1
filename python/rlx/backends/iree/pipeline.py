"""The passes between a graph at LIR and what IREE is given."""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.backends.iree.targets import Target
from rlx.passes.base import Pass
from rlx.passes.pipeline import Pipeline


def lowering_passes(target: Target) -> str:
    """The passes that make linalg of rlx ops, and of linalg what IREE compiles well for a target, as pipeline text.

    Their order matters: globals first, since weights and states are handled by what loads and stores them; loops are
    still ops when their buffers are made, and are branches only when states have been found to be updated in place.
    """
    from rlx.backends.iree.passes.emulate import Emulate
    from rlx.backends.iree.passes.set_device import SetDevice

    steps: list[str | Pass] = [
        "rlx-to-linalg",
        "rlx-iree-globals",
        "rlx-iree-scatter",
        "rlx-iree-materialise",
        "rlx-iree-loop-buffers",
        "rlx-iree-in-place-updates",
        "rlx-iree-branches",
    ]
    if target.emulated:
        steps.append(Emulate(tuple(sorted(target.emulated))))
    if target.fences_reductions:
        steps.append("rlx-iree-fence-reductions")
    if target.device:
        steps.append(SetDevice(target.device))
    return ",".join(map(str, steps))


def lower(module: Any, target: Target) -> None:
    """Make of a module of claimed ops what IREE is given for a target, in place."""
    with mlir.unregistered_dialects_allowed():
        Pipeline.parse(lowering_passes(target)).run(module, verify_each=False)
