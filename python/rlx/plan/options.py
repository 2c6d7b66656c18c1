"""What lies in the arena of a plan, and how."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.support.errors import Error


@dataclass(frozen=True)
class MemoryPlanOptions:
    """What a plan places, and by which rules.

    Attributes:
        alignment: Of each value in the arena that is not a view, in bytes; a power of two.
        allocate_inputs: Inputs have a place in the arena, which is used again after their last reader. Else they stay
            in the caller's memory.
        allocate_params: Parameters and states have a place in the arena, which nothing else uses.
        allocate_constants: Constants have a place in the arena, too.
        in_place: Values may be computed in the bytes of others: over an operand that dies, or within a result that follows.
        hoist_weights: Values that are computed from parameters and constants alone lie outside the arena: a program that
            computes them once, when it is loaded, needs them at every run.
        f32_uniform: Every element takes four bytes at least, as on devices that compute in nothing narrower.

    Raises:
        Error: The alignment is no power of two.
    """

    alignment: int = 64
    allocate_inputs: bool = True
    allocate_params: bool = False
    allocate_constants: bool = False
    in_place: bool = True
    hoist_weights: bool = False
    f32_uniform: bool = False

    def __post_init__(self) -> None:
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise Error(f"alignment {self.alignment} is not a power of two")

    @staticmethod
    def inference() -> MemoryPlanOptions:
        """All that a run needs in one arena."""
        return MemoryPlanOptions(allocate_params=True, allocate_constants=True)

    @staticmethod
    def backward_activations_only() -> MemoryPlanOptions:
        """What a backward pass computes, and nothing that it is given: its weights are those of the forward pass."""
        return MemoryPlanOptions(allocate_inputs=False)

    @property
    def shared_kinds(self) -> frozenset[str]:
        """Kinds of storage that lie in the arena while they live."""
        return frozenset({"value"} | ({"input"} if self.allocate_inputs else set()))

    @property
    def pinned_kinds(self) -> frozenset[str]:
        """Kinds of storage that lie in the arena all the time."""
        pinned = {"param", "state"} if self.allocate_params else set[str]()
        return frozenset(pinned | ({"constant"} if self.allocate_constants else set()))
