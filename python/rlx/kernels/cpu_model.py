"""`CpuModel`: the properties of a CPU that kernels depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlx.support.errors import Error
from rlx.support.suggestions import suggestion

if TYPE_CHECKING:
    from rlx.kernels.elements import Element


@dataclass(frozen=True)
class CpuModel:
    """The vector registers and instructions that code for a CPU may use.

    Attributes:
        name: The architecture, as in `Session(arch=…)`. `x86-64-v4-vnni` has AVX512-VNNI too: machines that compile for
            themselves may be of it.
        vector_bytes: Bytes of a vector register.
        registers: The number of vector registers.
        pair_bytes: Bytes of a register whose pairs of integers are multiplied and added in one instruction; 0 without one.
        has_quads: Whether an instruction adds sums of four products of bytes to i32.
        has_f16: Whether f16 is converted to f32 in one instruction.
        has_fma: Whether a product and a sum are one instruction, rounded once. Elsewhere `math.fma` is a function call for
            each lane.
        is_tested: Whether the tests run kernels on this architecture, on machines that have it. Kernels are chosen
            automatically only if they do.
    """

    name: str
    vector_bytes: int
    registers: int
    has_fma: bool
    pair_bytes: int = 0
    has_quads: bool = False
    has_f16: bool = False
    is_tested: bool = True

    @property
    def sums(self) -> int:
        """The number of vectors of sums that registers hold in addition to the operands of products."""
        return 24 if self.registers >= 32 else 12

    def lanes(self, element: Element) -> int:
        """The number of elements in a vector register."""
        return max(1, self.vector_bytes // element.itemsize)


_MODELS = {
    model.name: model
    for model in (
        CpuModel("x86-64", 16, 16, has_fma=False),
        CpuModel("x86-64-v2", 16, 16, has_fma=False, pair_bytes=16),
        CpuModel("x86-64-v3", 32, 16, has_fma=True, pair_bytes=32, has_f16=True),
        CpuModel("x86-64-v4", 64, 32, has_fma=True, pair_bytes=64, has_f16=True),
        CpuModel("x86-64-v4-vnni", 64, 32, has_fma=True, pair_bytes=64, has_quads=True, has_f16=True),
        *(
            CpuModel(name, 16, 32, has_fma=True, has_f16=True, is_tested=False)
            for name in ("aarch64", "aarch64-android", "neoverse-v1", "apple")
        ),
    )
}


def cpu_models() -> tuple[str, ...]:
    """The names of the architectures with kernels."""
    return tuple(_MODELS)


def cpu_model(name: str) -> CpuModel:
    """Return the model of an architecture.

    Raises:
        Error: There are no kernels for the architecture.
    """
    if name not in _MODELS:
        raise Error(f"no kernels for the CPU '{name}'{suggestion(name, _MODELS)}", hint=f"known: {', '.join(_MODELS)}")
    return _MODELS[name]
