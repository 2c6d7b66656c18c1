"""Reading of rotary positions from a configuration. See `rope.py` for the methods."""

from __future__ import annotations

import math

from rlx.models.fields import Fields
from rlx.models.rope import RotaryTables

# The smallest divisor. No published model is close to it.
_LEAST = 1e-6
_TYPES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope", "su")
# Set for GGUF files, which store the number of rotated lanes instead of a fraction.
LANES_FIELD = "rope_lanes"


def read_rope(
    fields: Fields,
    head_dim: int,
    positions: int,
    theta: float = 10_000.0,
    part: str | None = None,
    fraction: float | None = None,
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
        fraction: The default fraction of lanes that are rotated; None if the family rotates all.

    Raises:
        Error: The type is not known, or a number is missing or invalid.
    """
    given = fields.within("rope_parameters")
    if part is not None and given is not None:
        given = given.within(part)
    base = given if given is not None and given.has("rope_theta") else fields
    theta = base.number("rope_theta", theta, least=1)
    lanes = _lanes(fields, given, head_dim, fraction)
    scaling = given if given is not None else fields.within("rope_scaling")
    if scaling is None:
        return RotaryTables(lanes, theta)
    rope_type = scaling.choice("rope_type" if scaling.has("rope_type") else "type", _TYPES, "default")
    if rope_type == "default":
        return RotaryTables(lanes, theta)
    if rope_type in ("longrope", "su"):
        return _long(fields, scaling, lanes, theta, positions)
    factor = scaling.number("factor", least=1)
    if rope_type in ("linear", "dynamic"):
        return RotaryTables(lanes, theta, rope_type, factor, positions)
    has_length = scaling.has("original_max_position_embeddings")
    original = scaling.size("original_max_position_embeddings") if has_length else positions
    if rope_type == "llama3":
        low, high = (scaling.number(f"{end}_freq_factor", least=_LEAST) for end in ("low", "high"))
        if low >= high:
            raise scaling.refusal("high_freq_factor", f"more than 'low_freq_factor', {low}")
        return RotaryTables(lanes, theta, rope_type, factor, original, low=low, high=high)
    if theta <= 1:
        raise base.refusal("rope_theta", "more than 1 for rotary positions of the type 'yarn'")
    low, high = (
        scaling.number(name, least=_LEAST) if scaling.has(name) else default
        for name, default in (("beta_slow", 1.0), ("beta_fast", 32.0))
    )
    scale = _yarn_scale(scaling, factor)
    return RotaryTables(lanes, theta, rope_type, factor, original, scale, low, high, scaling.flag("truncate", True))


def _lanes(fields: Fields, given: Fields | None, head_dim: int, fraction: float | None) -> int:
    """Return the number of rotated lanes, at least two of the head and even."""
    if fields.has(LANES_FIELD):
        lanes, source, name = fields.size(LANES_FIELD, most=head_dim), fields, LANES_FIELD
    else:
        name = "partial_rotary_factor"
        source = given if given is not None and given.has(name) else fields
        if fraction is None:
            source.only(partial_rotary_factor=1.0)
            lanes, name = head_dim, "head_dim"
        else:
            factor = source.number(name, fraction)
            if factor > 1:
                raise source.refusal(name, "at most 1")
            lanes = int(head_dim * factor)
    if lanes % 2 or lanes < 2:
        raise source.refusal(name, f"even, since rotary positions need pairs of lanes ({lanes} lanes)")
    return lanes


def _long(fields: Fields, scaling: Fields, lanes: int, theta: float, positions: int) -> RotaryTables:
    """Return the positions of `longrope`. Older files have the original length outside of the object."""
    name = "original_max_position_embeddings"
    source = fields if fields.has(name) else scaling
    original = source.size(name, positions, least=2)
    short, long = (scaling.numbers(f"{kind}_factor", lanes // 2, least=_LEAST) for kind in ("short", "long"))
    factor = scaling.number("factor", least=1) if scaling.has("factor") else positions / original
    scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    if scaling.has("attention_factor"):
        scale = scaling.number("attention_factor", least=_LEAST)
    return RotaryTables(lanes, theta, "longrope", factor, original, scale, divisors=short, long_divisors=long)


def yarn_mscale(factor: float, weight: float = 1.0) -> float:
    """Return the attention temperature of YaRN for a factor (§3.4, eq. 22)."""
    return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0


def _yarn_scale(scaling: Fields, factor: float) -> float:
    """Return YaRN's attention temperature, as a factor of cosines and sines."""
    if scaling.has("attention_factor"):
        return scaling.number("attention_factor", least=_LEAST)
    if scaling.has("mscale") and scaling.has("mscale_all_dim"):
        of_scores, of_all = (scaling.number(name) for name in ("mscale", "mscale_all_dim"))
        if of_scores and of_all:
            return yarn_mscale(factor, of_scores) / yarn_mscale(factor, of_all)
    return yarn_mscale(factor)
