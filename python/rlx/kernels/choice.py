"""`KernelChoice`: which ops of a program kernels implement."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rlx.kernels.case import KernelCase
from rlx.kernels.registry import CpuKernel, kernels_of, load
from rlx.support.errors import Error
from rlx.support.suggestions import suggestion

DEFAULTS = ("auto", "all", "off")


@dataclass(frozen=True)
class KernelChoice:
    """A choice of kernels, from text such as `"auto"`, `"off"`, `"all"`, `"auto -softmax"`, `"off +row_softmax"`.

    Args:
        default: `"auto"` uses a kernel where it is faster than the op's lowering, on CPUs where the tests run kernels; `"all"`
            wherever it takes the op; `"off"` nowhere.
        more: Names of kernels, or of ops, to use wherever they take the op.
        without: Names of kernels, or of ops, not to use.

    Raises:
        Error: A name is unknown.
    """

    default: str = "auto"
    more: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.default not in DEFAULTS:
            known = f"one of {', '.join(DEFAULTS)}"
            raise Error(
                f"kernels: '{self.default:.60}' is not {known}", hint='"auto -softmax +layer_norm" changes single ones'
            )
        known_names = {*load(), *(made.op for made in load().values())}
        for name in (*self.more, *self.without):
            if name not in known_names:
                raise Error(f"there is no kernel '{name}'{suggestion(name, known_names)}")

    @classmethod
    def parse(cls, text: str) -> KernelChoice:
        """Parse the text form.

        Raises:
            Error: The text is not of that form, or a name is unknown.
        """
        words = text.split()
        if not words:
            raise Error("kernels: the choice is empty", hint=f"it is one of {', '.join(DEFAULTS)}, or 'auto -softmax'")
        default = words.pop(0) if words[0][0] not in "+-" else "auto"
        for word in words:
            if word[0] not in "+-":
                raise Error(f"kernels '{text:.60}': expected +NAME or -NAME, got '{word}'")
        more, without = (tuple(w[1:] for w in words if w[0] == sign) for sign in "+-")
        return cls(default, more, without)

    def __str__(self) -> str:
        return " ".join([self.default, *(f"+{n}" for n in self.more), *(f"-{n}" for n in self.without)])

    def ops(self) -> Collection[str]:
        """The names of the ops that have kernels."""
        return {made.op for made in load().values()} if self.default != "off" or self.more else ()

    def kernel_for(self, op: str, case: KernelCase) -> CpuKernel | None:
        """Return the kernel that implements an op in a case; None if the op is lowered."""
        for made in kernels_of(op):
            if {made.name, op} & set(self.without):
                continue
            is_named = bool({made.name, op} & set(self.more))
            if not is_named and (self.default == "off" or (self.default == "auto" and not case.cpu.is_tested)):
                continue
            if made.accepts(case) and (is_named or self.default == "all" or made.is_faster(case)):
                return made
        return None
