"""Rotary positions: frequencies, and the methods of stretching them for longer texts.

Sources: Su et al., RoFormer (2021), §3.2.2; `linear`: Chen et al., Position Interpolation (2023), eq. 4; `dynamic` and
`yarn`: Peng et al., YaRN (2023), §3.1 to §3.4; `llama3`: the Llama 3.1 model card and its reference code; `longrope`: Ding
et al., LongRoPE (2024), §3.2, and the reference code of Phi-3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.support.errors import ShapeError


@dataclass(frozen=True)
class RotaryTables:
    """Rotary positions.

    Attributes:
        lanes: The number of rotated lanes of a head. They are its first lanes.
        rope_theta: The base of the frequencies.
        rope_type: The method of stretching.
        factor: The stretching factor.
        original_length: The number of tokens in the first training. For `dynamic` and `longrope`, longer texts are stretched.
        attention_factor: The factor of cosines and sines.
        low, high: For `yarn` and `llama3`, the numbers of rotations over the original length with full stretching and
            with none.
        truncate: For `yarn`, whether the limits of the partially stretched lanes are rounded to integers.
        divisors: Numbers by which the frequencies are divided, one for each pair of lanes; empty for none. For `longrope`
            they hold for texts of the original length.
        long_divisors: For `longrope`, the divisors for longer texts.
    """

    lanes: int
    rope_theta: float
    rope_type: str = "default"
    factor: float = 1.0
    original_length: int = 1
    attention_factor: float = 1.0
    low: float = 1.0
    high: float = 1.0
    truncate: bool = True
    divisors: tuple[float, ...] = ()
    long_divisors: tuple[float, ...] = ()

    def frequencies(self, length: Dim) -> np.ndarray:
        """Return the angle by which each pair of lanes is rotated from one position to the next.

        Args:
            length: The number of positions. It is used only for the types `dynamic` and `longrope`.

        Returns:
            `[lanes / 2]`, f64, in radians.

        Raises:
            ShapeError: The type is `dynamic`, and the length is not known.
        """
        steps, theta = np.arange(0, self.lanes, 2) / self.lanes, self.rope_theta
        if self.rope_type == "dynamic":
            if type(length) is not int:
                message = f"rotary positions of the type 'dynamic' depend on the number of tokens, which is '{length}'"
                raise ShapeError(message, hint="give integers: graph(sequence=128)")
            stretch = self.factor * max(length, self.original_length) / self.original_length - (self.factor - 1)
            theta *= stretch ** (self.lanes / max(self.lanes - 2, 1))
        plain = theta**-steps
        is_long = self.rope_type == "longrope" and type(length) is int and length > self.original_length
        divisors = self.long_divisors if is_long else self.divisors
        if divisors:
            plain = plain / np.array(divisors)
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
            return self.lanes * math.log(ratio) / (2 * math.log(self.rope_theta))

        first, last = lane(self.high), lane(self.low)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, self.lanes - 1)
        if first == last:
            last += 0.001
        return 1 - np.clip((np.arange(len(plain)) - first) / (last - first), 0, 1)

    def tables(self, g: Any, start: Dim, length: Dim) -> tuple[Tensor, Tensor]:
        """Return cosines and sines for `length` positions from `start` on, each `[length, lanes / 2]`, f32."""
        with g.named("rope"):
            positions = g.reshape(g.cast(g.arange(start, start + length), "f32"), (length, 1))
            return self._tables(g, positions, start + length)

    def tables_at(self, g: Any, starts: Tensor, length: Dim, context: int) -> tuple[Tensor, Tensor]:
        """Return cosines and sines for texts that begin at different positions.

        Args:
            g: The graph.
            starts: The first positions, i32 `[batch]`.
            length: The number of positions of each text.
            context: The largest position after the texts. `dynamic` and `longrope` stretch for texts of this length.

        Returns:
            Two tensors `[batch, length, lanes / 2]`, f32.
        """
        with g.named("rope"):
            batch = starts.shape.dims[0]
            positions = g.reshape(starts, (batch, 1, 1)) + g.reshape(g.arange(0, length), (1, length, 1))
            return self._tables(g, g.cast(positions, "f32"), context)

    def _tables(self, g: Any, positions: Tensor, total: Dim) -> tuple[Tensor, Tensor]:
        frequencies = g.constant(self.frequencies(total).astype(np.float32)[None])
        if self.rope_type == "longrope" and type(total) is not int:
            longer = g.constant(self.frequencies(self.original_length + 1).astype(np.float32)[None])
            frequencies = g.where(g.dim_size(total) > self.original_length, longer, frequencies)
        angles = positions * frequencies
        scale = self.attention_factor
        cos, sin = g.cos(angles), g.sin(angles)
        return (cos, sin) if scale == 1 else (cos * scale, sin * scale)
