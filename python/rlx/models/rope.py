"""Rotary positions of a configuration: frequencies, and the methods of stretching them for longer texts.

Sources: Su et al., RoFormer (2021), §3.2.2; `linear`: Chen et al., Position Interpolation (2023), eq. 4; `dynamic` and
`yarn`: Peng et al., YaRN (2023), §3.1 to §3.4; `llama3`: the Llama 3.1 model card and its reference code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.models.fields import Fields
from rlx.support.errors import ShapeError

# The smallest divisor. No published model is close to it.
_LEAST = 1e-6
_TYPES = ("default", "linear", "dynamic", "yarn", "llama3")


@dataclass(frozen=True)
class RotaryTables:
    """Rotary positions.

    Attributes:
        head_dim: The number of lanes of a head. All lanes are rotated.
        rope_theta: The base of the frequencies.
        rope_type: The method of stretching.
        factor: The stretching factor.
        original_length: The number of tokens in the first training. For `dynamic`, longer texts are stretched.
        attention_factor: The factor of cosines and sines.
        low, high: For `yarn` and `llama3`, the numbers of rotations over the original length with full stretching and
            with none.
        truncate: For `yarn`, whether the limits of the partially stretched lanes are rounded to integers.
    """

    head_dim: int
    rope_theta: float
    rope_type: str = "default"
    factor: float = 1.0
    original_length: int = 1
    attention_factor: float = 1.0
    low: float = 1.0
    high: float = 1.0
    truncate: bool = True

    def frequencies(self, length: Dim) -> np.ndarray:
        """Return the angle by which each pair of lanes is rotated from one position to the next.

        Args:
            length: The number of positions. It is used only for the type `dynamic`.

        Returns:
            `[head_dim / 2]`, f64, in radians.

        Raises:
            ShapeError: The type is `dynamic`, and the length is not known.
        """
        steps, theta = np.arange(0, self.head_dim, 2) / self.head_dim, self.rope_theta
        if self.rope_type == "dynamic":
            if type(length) is not int:
                message = f"rotary positions of the type 'dynamic' depend on the number of tokens, which is '{length}'"
                raise ShapeError(message, hint="give integers: graph(sequence=128)")
            stretch = self.factor * max(length, self.original_length) / self.original_length - (self.factor - 1)
            theta *= stretch ** (self.head_dim / max(self.head_dim - 2, 1))
        plain = theta**-steps
        if self.rope_type == "linear":
            return plain / self.factor
        if self.rope_type in ("yarn", "llama3"):
            kept = self._kept(plain)
            return kept * plain + (1 - kept) * plain / self.factor
        return plain

    def _kept(self, plain: np.ndarray) -> np.ndarray:
        """Return the unstretched fraction of each frequency, between 0 and 1."""
        if self.rope_type == "llama3":
            rotations = self.original_length * plain / (2 * math.pi)
            return np.clip((rotations - self.low) / (self.high - self.low), 0, 1)

        def lane(rotations: float) -> float:
            ratio = self.original_length / (rotations * 2 * math.pi)
            return self.head_dim * math.log(ratio) / (2 * math.log(self.rope_theta))

        first, last = lane(self.high), lane(self.low)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, self.head_dim - 1)
        if first == last:
            last += 0.001
        return 1 - np.clip((np.arange(len(plain)) - first) / (last - first), 0, 1)

    def tables(self, g: Any, start: Dim, length: Dim) -> tuple[Tensor, Tensor]:
        """Return cosines and sines for `length` positions from `start` on, each `[length, head_dim / 2]`, f32."""
        with g.named("rope"):
            positions = g.reshape(g.cast(g.arange(start, start + length), "f32"), (length, 1))
            angles = positions * g.constant(self.frequencies(start + length).astype(np.float32)[None])
            scale = self.attention_factor
            return tuple(t if scale == 1 else t * scale for t in (g.cos(angles), g.sin(angles)))


def read_rope(
    fields: Fields, head_dim: int, positions: int, theta: float = 10_000.0, part: str | None = None
) -> RotaryTables:
    """Return the rotary positions of a configuration.

    Newer files have all values in `rope_parameters`. Older files have `rope_theta` and, for stretched positions,
    `rope_scaling`.

    Args:
        fields: The configuration.
        head_dim: The number of lanes of a head.
        positions: `max_position_embeddings`.
        theta: The default base.
        part: The key of the layer's object in `rope_parameters`, if layers differ.

    Raises:
        Error: The type is not known, or a number is missing or invalid.
    """
    if head_dim % 2:
        raise fields.refusal("head_dim", f"even, since rotary positions need pairs of lanes ({head_dim} lanes)")
    given = fields.within("rope_parameters")
    if part is not None and given is not None:
        given = given.within(part)
    base = given if given is not None and given.has("rope_theta") else fields
    theta = base.number("rope_theta", theta, least=1)
    scaling = given if given is not None else fields.within("rope_scaling")
    if scaling is None:
        return RotaryTables(head_dim, theta)
    scaling.only(partial_rotary_factor=1.0)
    rope_type = scaling.choice("rope_type" if scaling.has("rope_type") else "type", _TYPES, "default")
    if rope_type == "default":
        return RotaryTables(head_dim, theta)
    factor = scaling.number("factor", least=1)
    if rope_type in ("linear", "dynamic"):
        return RotaryTables(head_dim, theta, rope_type, factor, positions)
    has_length = scaling.has("original_max_position_embeddings")
    original = scaling.size("original_max_position_embeddings") if has_length else positions
    if rope_type == "llama3":
        low, high = (scaling.number(f"{end}_freq_factor", least=_LEAST) for end in ("low", "high"))
        if low >= high:
            raise scaling.refusal("high_freq_factor", f"more than 'low_freq_factor', {low}")
        return RotaryTables(head_dim, theta, rope_type, factor, original, low=low, high=high)
    if theta <= 1:
        raise base.refusal("rope_theta", "more than 1 for rotary positions of the type 'yarn'")
    low, high = (
        scaling.number(name, least=_LEAST) if scaling.has(name) else default
        for name, default in (("beta_slow", 1.0), ("beta_fast", 32.0))
    )
    scale = _yarn_scale(scaling, factor)
    return RotaryTables(head_dim, theta, rope_type, factor, original, scale, low, high, scaling.flag("truncate", True))


def _yarn_scale(scaling: Fields, factor: float) -> float:
    """Return YaRN's attention temperature, as a factor of cosines and sines (§3.4, eq. 22)."""
    if scaling.has("attention_factor"):
        return scaling.number("attention_factor", least=_LEAST)

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    if scaling.has("mscale") and scaling.has("mscale_all_dim"):
        of_scores, of_all = (scaling.number(name) for name in ("mscale", "mscale_all_dim"))
        if of_scores and of_all:
            return scale(of_scores) / scale(of_all)
    return scale(1)
