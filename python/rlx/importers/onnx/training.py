"""Optimiser steps of ONNX's training preview ops."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.importers.onnx.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup

_DOMAIN = "ai.onnx.preview.training"


def _groups(xs: tuple[Tensor, ...], count: int) -> list[tuple[Tensor, ...]]:
    """Return the operands of each optimised tensor. The operands are ordered by kind."""
    each = len(xs) // count
    return [tuple(xs[k * each + i] for k in range(count)) for i in range(each)]


def _by_kind(results: list[list[Tensor]]) -> list[Tensor]:
    return [t for kind in zip(*results, strict=True) for t in kind]


@dataclass(frozen=True, kw_only=True)
class MomentumAttributes(ArgumentGroup):
    """The attributes of `Momentum`, with ONNX's names."""

    alpha: float
    beta: float
    mode: str
    norm_coefficient: float


@imports(f"{_DOMAIN}.Momentum")
def momentum(g: Graph, rate: Tensor, step: Tensor, *xs: Tensor, by: MomentumAttributes) -> list[Tensor]:
    results: list[list[Tensor]] = []
    for x, gradient, velocity in _groups(xs, 3):
        gradient = g.add(g.mul(x, by.norm_coefficient), gradient)
        factor = g.where(g.gt(step, 0), by.beta, 1.0)
        velocity = g.add(g.mul(velocity, by.alpha), g.mul(gradient, factor))
        used = g.add(gradient, g.mul(velocity, by.alpha)) if by.mode == "nesterov" else velocity
        results.append([g.sub(x, g.mul(rate, used)), velocity])
    return _by_kind(results)


@imports(f"{_DOMAIN}.Adagrad")
def adagrad(
    g: Graph,
    rate: Tensor,
    step: Tensor,
    *xs: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> list[Tensor]:
    rate = g.div(rate, g.add(g.mul(g.cast(step, rate.dtype), decay_factor), 1.0))
    results: list[list[Tensor]] = []
    for x, gradient, squares in _groups(xs, 3):
        gradient = g.add(g.mul(x, norm_coefficient), gradient)
        squares = g.add(squares, g.mul(gradient, gradient))
        results.append([g.sub(x, g.div(g.mul(rate, gradient), g.add(g.sqrt(squares), epsilon))), squares])
    return _by_kind(results)


@dataclass(frozen=True, kw_only=True)
class AdamAttributes(ArgumentGroup):
    """The attributes of `Adam`, with ONNX's names."""

    alpha: float = 0.9
    beta: float = 0.999
    epsilon: float = 0.0
    norm_coefficient: float = 0.0
    norm_coefficient_post: float = 0.0


@imports(f"{_DOMAIN}.Adam")
def adam(g: Graph, rate: Tensor, step: Tensor, *xs: Tensor, by: AdamAttributes) -> list[Tensor]:
    time, alpha, beta = g.cast(step, rate.dtype), by.alpha, by.beta
    corrected = g.div(g.mul(rate, g.sqrt(g.sub(1.0, g.pow(beta, time)))), g.sub(1.0, g.pow(alpha, time)))
    rate = g.where(g.gt(step, 0), corrected, rate)
    results: list[list[Tensor]] = []
    for x, gradient, mean, squares in _groups(xs, 4):
        gradient = g.add(g.mul(x, by.norm_coefficient), gradient)
        mean = g.add(g.mul(mean, alpha), g.mul(gradient, 1 - alpha))
        squares = g.add(g.mul(squares, beta), g.mul(g.mul(gradient, gradient), 1 - beta))
        following = g.sub(x, g.div(g.mul(rate, mean), g.add(g.sqrt(squares), by.epsilon)))
        results.append([g.mul(following, 1 - by.norm_coefficient_post), mean, squares])
    return _by_kind(results)
