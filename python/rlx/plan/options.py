"""Options of memory plans."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.support.errors import Error


@dataclass(frozen=True)
class MemoryPlanOptions:
    """The values that a plan places, and its rules.

    Attributes:
        alignment: The alignment in bytes of each value in the arena that is not a view; a power of two.
        allocate_inputs: Inputs have a place in the arena, which is reused after their last reader. Otherwise they stay
            in the caller's memory.
        allocate_params: Parameters and states have a place in the arena, which is not reused.
        allocate_constants: Constants have a place in the arena, which is not reused.
        in_place: A value may reuse the bytes of another: an operand that dies, or a later result that contains it.
        hoist_weights: Values that depend only on parameters and constants are outside the arena: a program that
            computes them once, at load time, needs them in every run.
        f32_uniform: Every element takes at least four bytes, as on devices without narrower arithmetic.

    Raises:
        Error: The alignment is not a power of two.
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
        """Return options with everything that a run needs in one arena."""
        return MemoryPlanOptions(allocate_params=True, allocate_constants=True)

    @staticmethod
    def backward_activations_only() -> MemoryPlanOptions:
        """Return options for a backward pass: only computed values are placed, since its inputs belong to the forward pass."""
        return MemoryPlanOptions(allocate_inputs=False)

    @property
    def shared_kinds(self) -> frozenset[str]:
        """Kinds of storage that are in the arena during their live range."""
        return frozenset({"value"} | ({"input"} if self.allocate_inputs else set()))

    @property
    def pinned_kinds(self) -> frozenset[str]:
        """Kinds of storage that are in the arena permanently."""
        pinned = {"param", "state"} if self.allocate_params else set[str]()
        return frozenset(pinned | ({"constant"} if self.allocate_constants else set()))
