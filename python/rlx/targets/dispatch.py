"""`KernelDispatchPolicy`: the choice between a target's own rules for composite ops and their decomposition."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from rlx.ir.calls import Answered
from rlx.ir.op import registry
from rlx.kernels.choice import KernelChoice
from rlx.passes.claims import known_ops
from rlx.passes.decompose import Decompose
from rlx.passes.lapack import OPS, Lapack
from rlx.passes.pipeline import PassPipeline, PipelineStep
from rlx.support.errors import Error
from rlx.support.guards import is_mapping
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion
from rlx.targets.iree.passes.kernels import ChooseKernels
from rlx.targets.options import CompileOptions
from rlx.targets.protocol import Target

DEFAULTS = ("prefer-native", "force-native", "force-common")
WAYS = ("native", "common")


@runtime_checkable
class CallingLapack(Protocol):
    """A target whose programs may call LAPACK in this process. Most targets cannot."""

    @property
    def calls_lapack(self) -> bool:
        """Whether the library is there. Then `rlx-lapack` marks ops of programs of sessions, and the lowering calls it."""
        ...


@dataclass(frozen=True)
class KernelDispatchPolicy(Answered):
    """A choice for each composite op: the target's own rule (native), or decomposition (common).

    Primitives have no decomposition, so the policy does not affect them.

    Args:
        default: `"prefer-native"` uses the target's rules where they exist, and decomposes all other composite ops.
            `"force-common"` decomposes all composite ops, to test or benchmark the target's rules. `"force-native"`
            decomposes none, and rejects a graph with an op that has no rule.
        overrides: `"native"` or `"common"` for single ops, by name.

    Raises:
        Error: The default, an override or an op is unknown, or an op is a primitive.
    """

    default: str = "prefer-native"
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if not isinstance(self.default, str) or self.default not in DEFAULTS:
            raise Error(f"dispatch policy {short_repr(self.default)} is not one of {', '.join(DEFAULTS)}")
        if not is_mapping(self.overrides):
            raise Error(f"the overrides of a dispatch policy are ways by op name, not {short_repr(self.overrides)}")
        for name, way in self.overrides.items():
            if way not in WAYS:
                raise Error(f"the way of {name} is {short_repr(way)}, expected one of {', '.join(WAYS)}")
        object.__setattr__(self, "overrides", {n: self.overrides[n] for n in sorted(known_ops(self.overrides))})
        cards = registry.load()
        if primitives := [name for name in self.overrides if not cards[name].composite]:
            raise Error(f"{', '.join(primitives)} is a primitive: it has no decomposition, so nothing is to be chosen")

    @classmethod
    def parse(cls, text: str) -> KernelDispatchPolicy:
        """Parse the text form of a policy, as `str` returns it: `"force-common"`, `"prefer-native,softmax=common"`.

        Raises:
            Error: The text is not of that form.
        """
        default, overrides = DEFAULTS[0], dict[str, str]()
        for i, word in enumerate(text.split(",")):
            name, equals, way = word.strip().partition("=")
            if equals:
                overrides[name] = way
            elif i == 0:
                default = name
            else:
                known = suggestion(name, registry.load())
                raise Error(f"dispatch policy '{text:.60}': expected OP=native or OP=common, got '{name}'{known}")
        return cls(default, overrides)

    def __str__(self) -> str:
        return ",".join([self.default, *(f"{name}={way}" for name, way in self.overrides.items())])

    def _ops(self, way: str) -> tuple[str, ...]:
        return tuple(name for name, chosen in self.overrides.items() if chosen == way)

    def _kernels(self, text: str) -> str:
        """Return a choice of kernels without those of ops that are decomposed."""
        choice = KernelChoice.parse(text)
        if self.default == "force-common":
            return str(replace(choice, default="off"))
        return str(replace(choice, without=(*choice.without, *(n for n in self._ops("common") if n in choice.ops()))))

    def is_common(self, name: str, claimed: Collection[str]) -> bool:
        """Whether an op is to be decomposed.

        Args:
            name: The op, composite.
            claimed: The ops that the target has rules for.
        """
        if name in self.overrides:
            return self.overrides[name] == "common"
        return self.default == "force-common" or (self.default == "prefer-native" and name not in claimed)

    def applied(self, pipeline: str) -> str:
        """Return the pipeline of a target, with its `rlx-decompose` changed to this policy.

        Raises:
            Error: The pipeline has no `rlx-decompose`.
        """
        if self == KernelDispatchPolicy():
            return pipeline
        steps = PassPipeline.parse(pipeline).steps
        if not any(isinstance(step.ours, Decompose) for step in steps):
            raise Error(f"dispatch policy '{self}': the target decomposes no ops, its pipeline is {pipeline}")
        return str(PassPipeline.of([text for step in steps for text in self._changed(step)]))

    def _changed(self, pipeline_step: PipelineStep) -> list[str]:
        """Return the steps that replace a step of a pipeline."""
        step = pipeline_step.ours
        if isinstance(step, ChooseKernels):
            return [str(replace(step, choice=self._kernels(step.choice)))]
        if not isinstance(step, Decompose):
            return [pipeline_step.text]
        native, common = self._ops("native"), self._ops("common")
        if self.default == "prefer-native":
            return [str(replace(step, except_=(*step.except_, *native), without=(*step.without, *common)))]
        if self.default == "force-common":
            return [str(Decompose(except_=native))]
        return [str(Decompose(ops=common))] if common else []


def with_kernels(target: Target, options: CompileOptions) -> str:
    """Return the pipeline of a target to LIR, with the kernels of the options. Level 0 uses kernels only where they are named.

    Raises:
        Error: The options name kernels, and the target has none.
    """
    choice = "off" if options.kernels == "auto" and options.opt == 0 else options.kernels
    if choice == "auto":
        return target.pipeline
    steps = PassPipeline.parse(target.pipeline).steps
    if not any(isinstance(step.ours, ChooseKernels) for step in steps):
        if choice == "off":
            return target.pipeline
        raise Error(
            f"kernels='{choice}': the target {target.name} has no kernels", hint="kernels are for the target cpu"
        )
    texts = [str(replace(s.ours, choice=choice)) if isinstance(s.ours, ChooseKernels) else s.text for s in steps]
    return str(PassPipeline.of(texts))


def with_lapack(pipeline: str) -> str:
    """Return the pipeline of a target to LIR, in which LAPACK computes factorisations.

    `rlx-decompose` runs twice: the first time it leaves these ops, which others such as `solve` decompose into.
    """
    texts: list[str] = []
    for step in PassPipeline.parse(pipeline).steps:
        if isinstance(step.ours, Decompose) and step.ours.for_ is not None:
            texts += [str(replace(step.ours, except_=(*step.ours.except_, *OPS))), str(Lapack())]
        texts.append(step.text)
    return str(PassPipeline.of(texts))


def kernel_passes(pipeline: str) -> list[str]:
    """Return the passes of a pipeline that choose kernels and routines of LAPACK, as text. They only mark ops."""
    steps = [step.ours for step in PassPipeline.parse(pipeline).steps]
    marking = [replace(step, only_mark=True) if isinstance(step, Lapack) else step for step in steps]
    return [str(step) for step in marking if isinstance(step, (ChooseKernels, Lapack))]


def policy_of(given: KernelDispatchPolicy | str | None) -> KernelDispatchPolicy:
    """Return the policy for a user's argument: a policy, its text, or None for the default.

    Raises:
        Error: The argument is of another type, or the text is wrong.
    """
    if given is None or isinstance(given, KernelDispatchPolicy):
        return given or KernelDispatchPolicy()
    if not isinstance(given, str):
        raise Error(f"dispatch must be a KernelDispatchPolicy or its text, got {short_repr(given)}")
    return KernelDispatchPolicy.parse(given)
