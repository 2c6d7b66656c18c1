"""Scheduling: the parallelism of each layer, within the resources of a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlx.support.errors import CompileError
from rlx.targets.fpga.estimate import ResourceCost, cost_of, total
from rlx.targets.fpga.lower.design import Network, with_queues
from rlx.targets.fpga.lower.layer import StreamLayer
from rlx.targets.fpga.lower.requantiser import Requantiser
from rlx.targets.fpga.lower.window import WindowLayer, divisors
from rlx.targets.fpga.parts import FpgaPart

_MOST_LANES, _MOST_PARALLEL = 16, 16
# Bits of the factor for each cycle of a serial product. Fewer bits are smaller and slower.
_SERIAL = (1, 2, 4, 8)
# The fraction of a part's logic that routing can use.
_USABLE = 0.85


@dataclass(frozen=True)
class Preset:
    """The goal of a design. All presets compute the same results.

    Attributes:
        title: A description.
        grows: Whether the slowest layer gets more parallel while the part has room.
        keeps_up: Whether growing stops once no layer is slower than the input.
        lanes: The maximal number of input channels multiplied at once; None means 1, or more if the preset grows.
        parallel: The maximal number of results computed at once; None as for `lanes`.
        ternary: Whether weights of -1, 0 and 1 become additions.
        shared_requant: Whether requantisers with enough time multiply over several cycles; None means only if multipliers
            are scarce.
        clock_enable: Whether memories are read only when data advances.
        said: The options that were set individually.
    """

    title: str
    grows: bool = False
    keeps_up: bool = False
    lanes: int | None = None
    parallel: int | None = None
    ternary: bool = False
    shared_requant: bool | None = None
    clock_enable: bool = False
    said: frozenset[str] = frozenset()

    def with_options(self, **given: int | bool | None) -> Preset:
        """Return a copy with some attributes replaced. None leaves an attribute unchanged."""
        said = {name: value for name, value in given.items() if value is not None}
        return replace(self, **said, said=frozenset(said))


PRESETS = {
    "latency": Preset("the fewest cycles that the part has room for", grows=True),
    "size": Preset("the least logic: one product at a time, ternary weights as additions", ternary=True, shared_requant=True),
    "energy": Preset(
        "few accesses to memory: four channels in a word, read only where something moves on, ternary weights as additions",
        lanes=4, ternary=True, clock_enable=True,
    ),
    "precision": Preset("one product at a time, in hardware multipliers"),
    "bandwidth": Preset("layers as fast as the input, no faster", grows=True, keeps_up=True, ternary=True),
}  # fmt: skip
DEFAULT_PRESET = "precision"


def schedule_network(network: Network, preset: Preset, part: FpgaPart) -> Network:
    """Return a network with sizes and queues for a part.

    Raises:
        CompileError: It does not fit, even with one product at a time; the message has the excess.
    """
    windows = [layer for layer in network.layers if isinstance(layer, WindowLayer)]
    _check_options(windows, preset)
    for layer in network.layers:
        layer.changed(clock_enable=preset.clock_enable)
        if isinstance(layer, Requantiser):
            layer.changed(factor_bits=part.factor_bits)
        elif isinstance(layer, WindowLayer):
            _prepare(layer, preset)
    _save(network, preset, part)
    cost = _cost(network, part)
    if beyond := cost.beyond(part):
        fewer = "".join(f"a smaller --{n}, " for n in ("parallel", "lanes") if n in preset.said)
        hint = f"{fewer}a smaller model, weights of fewer bits, or a larger part: " + ", ".join(_larger(part))
        raise CompileError(f"'{network.name}' does not fit {part.name}: it needs " + "; ".join(beyond), hint=hint)
    if preset.grows:
        _grow(network, preset, part)
    return with_queues(network)


def _check_options(windows: Sequence[WindowLayer], preset: Preset) -> None:
    """Check that every option applies to at least one layer.

    Raises:
        CompileError: No layer can use an option; the message lists the layers.
    """
    products = [layer for layer in windows if layer.is_dense]
    for name, what, at in (("parallel", "results", 1), ("lanes", "input channels", 2)):
        most = getattr(preset, name)
        if name in preset.said and most > 1 and all(divisors(p.dense_shape[at], most)[-1] == 1 for p in products):
            sizes = [f"{p.name} ({p.place or 'no line'}) has {p.dense_shape[at]}" for p in products]
            message = f"--{name}={most}: no layer has a number of {what} that can be divided by any of 2 to {most}"
            raise CompileError(f"{message}: {'; '.join(sizes) or 'there are no products'}", hint=f"leave --{name} out")
    weighted = [layer for layer in windows if layer.weights is not None]
    if "ternary" in preset.said and preset.ternary and not any(_is_ternary(layer) for layer in weighted):
        widths = [f"{w.name} ({w.place or 'no line'}) has {w.weight_words()[1]} bits" for w in weighted]
        message = f"--ternary=yes: no layer has weights of -1, 0 and 1 only: {'; '.join(widths) or 'there are none'}"
        raise CompileError(message, hint="rlx quantize --bits=2 makes weights ternary")


def _is_ternary(layer: WindowLayer) -> bool:
    return bool(layer.weights is not None and abs(layer.weights).max() <= 1)


def _larger(part: FpgaPart) -> list[str]:
    from rlx.targets.fpga.parts import PARTS

    return [p.name for p in PARTS.values() if p.luts * p.memories > part.luts * part.memories] or ["none is known here"]


def _prepare(layer: WindowLayer, preset: Preset) -> None:
    layer.changed(ternary=preset.ternary and _is_ternary(layer))
    if layer.is_dense:
        _, results, channels = layer.dense_shape
        layer.changed(
            lanes=divisors(channels, preset.lanes or 1)[-1], parallel=divisors(results, preset.parallel or 1)[-1]
        )


def _cost(network: Network, part: FpgaPart) -> ResourceCost:
    return total((layer.module for layer in with_queues(network).layers), part)


def _save(network: Network, preset: Preset, part: FpgaPart) -> None:
    """Reduce the number of multipliers to that of the part, or further for small designs.

    First, requantisers with enough time multiply over several cycles. Then, products are made of logic.
    """

    def multipliers(layer: StreamLayer) -> int:
        return cost_of(layer.module, part).multipliers

    needed = sum(map(multipliers, network.layers))
    slowest = network.interval
    requantisers = [layer for layer in network.layers if isinstance(layer, Requantiser)]
    windows = [layer for layer in network.layers if isinstance(layer, WindowLayer)]
    for layer in sorted(requantisers, key=lambda r: r.output.count):
        if preset.shared_requant or (needed > part.multipliers and preset.shared_requant is None):
            needed -= multipliers(layer)
            _serialise(layer, slowest)
            needed += multipliers(layer)
    for layer in sorted([*requantisers, *windows], key=multipliers, reverse=True):
        if needed > part.multipliers:
            needed -= multipliers(layer)
            layer.changed(in_logic=True)
            needed += multipliers(layer)


def _serialise(layer: Requantiser, slowest: int) -> None:
    """Make products serial if the cycles for each element suffice."""
    for bits in _SERIAL:
        layer.changed(serial=bits)
        if layer.cycles <= slowest // 2:
            return
    layer.changed(serial=0)


def _grow(network: Network, preset: Preset, part: FpgaPart) -> None:
    """Make the slowest layer more parallel, repeatedly, until the part is full or a stream is the bottleneck."""
    others = [layer.cycles for layer in network.layers if not isinstance(layer, WindowLayer)]
    slowest_stream = max([s.count for s in network.inputs.values()] + others)
    goal = max(s.count for s in network.inputs.values()) if preset.keeps_up else slowest_stream
    windows = [layer for layer in network.layers if isinstance(layer, WindowLayer)]
    limits = FpgaPart(**{**part.__dict__, "luts": int(part.luts * _USABLE), "registers": int(part.registers * _USABLE)})
    while windows:
        slowest = max(windows, key=lambda layer: layer.cycles)
        if slowest.cycles <= max(goal, slowest.inputs[0].count):
            return
        before = slowest.lanes, slowest.parallel
        options = [
            sizes for sizes in _sizes(slowest, preset) if _cycles_with(slowest, sizes) < _cycles_with(slowest, before)
        ]
        _resize(slowest, before)
        if not options:
            return
        # The smallest increase that helps. Among equal ones, prefer the wider memory of weights over that of rows.
        _resize(slowest, min(options, key=lambda sizes: (sizes[0] * sizes[1], sizes[0])))
        if _cost(network, part).beyond(limits):
            _resize(slowest, before)
            return


def _cycles_with(layer: WindowLayer, sizes: tuple[int, int]) -> int:
    """Resize a layer, and return its cycles."""
    _resize(layer, sizes)
    return layer.cycles


def _resize(layer: WindowLayer, sizes: tuple[int, int]) -> None:
    layer.changed(lanes=sizes[0], parallel=sizes[1])


def _sizes(layer: WindowLayer, preset: Preset) -> list[tuple[int, int]]:
    """Return the possible pairs of `lanes` and `parallel` of a layer."""
    if not layer.is_dense:
        return [(lanes, 1) for lanes in divisors(layer.geometry.channels, _MOST_LANES)]
    _, results, channels = layer.dense_shape
    lanes = [layer.lanes] if preset.lanes else divisors(channels, _MOST_LANES)
    parallel = [layer.parallel] if preset.parallel else divisors(results, _MOST_PARALLEL)
    return [(q, p) for q in lanes for p in parallel]
