"""`rlx-recognize`: creation of higher-level ops from primitives."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.passes.base import Pass, option
from rlx.passes.fusion.base import Fusion, fuse, selected_fusions
from rlx.passes.recognition.recognize_activations import RecognizeActivations
from rlx.passes.recognition.recognize_attention import RecognizeAttention
from rlx.passes.recognition.recognize_norms import RecognizeNorms
from rlx.passes.recognition.recognize_softmax import RecognizeSoftmax

GROUPS: tuple[tuple[type[Fusion], ...], ...] = (
    (RecognizeActivations, RecognizeSoftmax, RecognizeNorms),
    (RecognizeAttention,),
)


RECOGNISERS: dict[str, type[Fusion]] = {fusion.title(): fusion for group in GROUPS for fusion in group}


@dataclass(frozen=True)
class Recognize(Pass, name="rlx-recognize", idempotent=True):
    """Create norms, activations, softmax and attention from their primitives; runs every `rlx-recognize-*`.

    Run rlx-simplify and cse first: duplicate computations are not recognised as equal.
    """

    target: str = option("", "the target, which limits recognition to ops that were measured to pay off there")

    def run(self, module: mlir.Module) -> None:
        active, _ = selected_fusions(self.name, RECOGNISERS, (), self.target)
        groups = [[fusion for fusion in group if fusion in active] for group in GROUPS]
        fuse(module, groups, self.name, off=[fusion for fusion in RECOGNISERS.values() if fusion not in active])
