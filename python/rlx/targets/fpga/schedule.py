"""How much of each layer is done at once: stages are balanced against what a part has."""

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
# The bits of a factor that a product in several cycles takes in each: fewer are smaller and slower.
_SERIAL = (1, 2, 4, 8)
# What routing leaves of the logic of a part.
_USABLE = 0.85


@dataclass(frozen=True)
class Preset:
    """What a design is good at. Every preset computes the same numbers.

    Attributes:
        title: What it is for.
        grows: Whether the slowest layer does more at once, as long as the part has room.
        keeps_up: Whether that ends once no layer is slower than the input.
        lanes: The input channels that every product takes at once, at most; None for one, or more where the preset grows.
        parallel: The results that every product has at once, likewise.
        ternary: Whether weights of -1, 0 and 1 are additions.
        shared_requant: Whether requantisers that have the time take several cycles for a product; None if only where
            multipliers are few.
        clock_enable: Whether memories are read only where something moves on.
        said: The options that were given one by one.
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
        """The same with some of its attributes said one by one; None leaves one as it is."""
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


def scheduled(network: Network, preset: Preset, part: FpgaPart) -> Network:
    """A network with sizes and queues for a part.

    Raises:
        CompileError: It does not fit, even with one product at a time; the message says by how much.
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
    """Refuse options that no layer can follow.

    Raises:
        CompileError: There is such an option; the message lists the layers.
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
    """Do with the multipliers that a part has, and for small designs with as few as can be.

    Requantisers come first: one that has the time takes several cycles for a product. Then products are made of logic.
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
    """Let products take as many cycles as there are for an element, if these are enough."""
    for bits in _SERIAL:
        layer.changed(serial=bits)
        if layer.cycles <= slowest // 2:
            return
    layer.changed(serial=0)


def _grow(network: Network, preset: Preset, part: FpgaPart) -> None:
    """Let the slowest layer do more at once, again and again, until the part is full or a stream is the slowest."""
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
        # The least that helps; of equals the one that has the wider memory of weights, and not of rows.
        _resize(slowest, min(options, key=lambda sizes: (sizes[0] * sizes[1], sizes[0])))
        if _cost(network, part).beyond(limits):
            _resize(slowest, before)
            return


def _cycles_with(layer: WindowLayer, sizes: tuple[int, int]) -> int:
    """The cycles of a layer with other sizes, which it then has."""
    _resize(layer, sizes)
    return layer.cycles


def _resize(layer: WindowLayer, sizes: tuple[int, int]) -> None:
    layer.changed(lanes=sizes[0], parallel=sizes[1])


def _sizes(layer: WindowLayer, preset: Preset) -> list[tuple[int, int]]:
    """The lanes and the results at once that a layer may have."""
    if not layer.is_dense:
        return [(lanes, 1) for lanes in divisors(layer.geometry.channels, _MOST_LANES)]
    _, results, channels = layer.dense_shape
    lanes = [layer.lanes] if preset.lanes else divisors(channels, _MOST_LANES)
    parallel = [layer.parallel] if preset.parallel else divisors(results, _MOST_PARALLEL)
    return [(q, p) for q in lanes for p in parallel]
