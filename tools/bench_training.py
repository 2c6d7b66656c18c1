"""Gradients and training steps, RLX on IREE and on XLA against JAX: each in a process on the same core, one thread, f32."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tools.bench_common import Figure, calls_for, cpu_seconds, median_ms, median_ratio, worker
from tools.training_models import MODELS, TrainingModel

PEERS = ("rlx", "rlx on xla", "jax")
TASKS = ("forward", "gradient", "step")
GRADIENT_LIMIT, STEP_LIMIT, OPS_LIMIT, MEMORY_LIMIT, DIFFERENTIATE_LIMIT_S = 3.2, 1.15, 3.0, 1.2, 2.0
_LEARNING_RATE = 1e-4
_TOLERANCE = 1e-3
_SECONDS_PER_TURN = 0.3
_OPS = (1250, 5000)


def measure(rounds: int) -> Iterator[Figure]:
    """Yield, for each model, the ratio of a gradient to the forward pass, and of a step of AdamW to JAX's.

    Raises:
        ArithmeticError: The losses differ.
    """
    for index, model in enumerate(MODELS):
        yield from _measure(index, model, rounds)
    yield from _differentiating()


def _measure(index: int, model: TrainingModel, rounds: int) -> Iterator[Figure]:
    from rlx.transforms.base import tensor_graph
    from rlx.transforms.grad import grad_with_loss

    graph = tensor_graph(model.graph())
    before, after = (len(g.function.entry_block.operations) for g in (graph, grad_with_loss(graph)))
    yield Figure(f"{model.name}: ops of the gradient to those of the loss", after / before, "x", OPS_LIMIT)
    with contextlib.ExitStack() as stack:
        workers = {peer: stack.enter_context(worker(_open, peer, index)) for peer in PEERS}
        losses = {peer: w.submit(_losses).result() for peer, w in workers.items()}
        for peer in PEERS[:-1]:
            error = max(abs(a - b) for a, b in zip(losses[peer], losses["jax"], strict=True))
            if not error < _TOLERANCE:
                raise ArithmeticError(f"{model.name}: {peer} and jax differ by {error:.2g}")
        memory = {peer: workers[peer].submit(_memory).result() for peer in ("rlx", "jax")}
        calls = {(p, t): w.submit(_calls, t).result() for p, w in workers.items() for t in TASKS}
        seconds: dict[Any, list[float]] = {key: [] for key in calls}
        for _ in range(rounds):
            for peer, task in calls:
                seconds[peer, task].append(workers[peer].submit(_turn, task, calls[peer, task]).result())
    for peer in PEERS:
        for task in TASKS:
            yield Figure(f"{model.name}, {task}: {peer}", median_ms(seconds[peer, task]), "ms")
    for peer in PEERS:
        ratio = median_ratio(seconds[peer, "gradient"], seconds[peer, "forward"])
        limit = GRADIENT_LIMIT if peer == "rlx" else None
        yield Figure(f"{model.name}: gradient to forward, {peer}", ratio, "x", limit)
    for peer in PEERS[:-1]:
        ratio = median_ratio(seconds[peer, "step"], seconds["jax", "step"])
        yield Figure(f"{model.name}: step to jax's, {peer}", ratio, "x", STEP_LIMIT if peer == "rlx" else None)
    for peer in ("rlx", "jax"):
        yield Figure(f"{model.name}: peak memory of a step, {peer}", memory[peer] / 2**20, "MiB")
    yield Figure(f"{model.name}: peak memory to jax's, rlx", memory["rlx"] / memory["jax"], "x", MEMORY_LIMIT)


def _differentiating() -> Iterator[Figure]:
    """Yield the processor seconds of differentiating long graphs, and their growth with the number of ops."""
    with worker() as process:
        seconds = {count: min(process.submit(_differentiate, count).result() for _ in range(3)) for count in _OPS}
    yield Figure(f"differentiate {_OPS[1]} ops", seconds[_OPS[1]], "s", DIFFERENTIATE_LIMIT_S)
    growth = (seconds[_OPS[1]] / _OPS[1]) / (seconds[_OPS[0]] / _OPS[0])
    yield Figure(f"differentiate: time for an op of {_OPS[1]} to one of {_OPS[0]}", growth, "x")


def _differentiate(count: int) -> float:
    import rlx

    g = rlx.Graph("long")
    x, w = g.input("x", (8, 16)), g.param("w", (16, 16))
    h = x
    while len(g.function.entry_block.operations) < count:
        h = g.tanh(h @ w + x) * 0.5
        h = h + g.softmax(h)
    g.set_outputs([g.sum(h)])
    return cpu_seconds(lambda: rlx.grad(g, ["w"]), 1)


# --- in the peer's process --------------------------------------------------------------------------

_prepared: dict[str, Callable[[], Any]] = {}
_peak: Callable[[], int]


def _open(peer: str, index: int) -> None:
    global _peak
    model = MODELS[index]
    params, inputs = model.arrays()
    if peer == "jax":
        tasks, _peak = _jax(model, params, inputs)
    else:
        tasks, _peak = _rlx(model, params, inputs, "xla" if peer.endswith("xla") else "cpu")
    _prepared.update(tasks)


def _losses() -> list[float]:
    """Return the loss before training, from the loss alone and from the first step.

    Later losses differ: AdamW makes a full step even for a gradient that is zero except for rounding.
    """
    return [float(_prepared["forward"]()), float(_prepared["step"]())]


def _calls(task: str) -> int:
    return calls_for(_prepared[task], _SECONDS_PER_TURN)


def _turn(task: str, calls: int) -> float:
    return cpu_seconds(_prepared[task], calls)


def _memory() -> int:
    return _peak()


def _rlx(model: TrainingModel, params: Any, inputs: Any, device: str) -> tuple[dict[str, Any], Callable[[], int]]:
    import rlx

    graph, session = model.graph(), rlx.Session(device, threads=1)
    optimizer = rlx.train.AdamW(_LEARNING_RATE)
    step = rlx.train.TrainStep(graph, optimizer, device=device, threads=1, params=params)
    step(inputs)
    step.set_params(params)
    # The allocator's statistics: the peak memory of the step's program on its device.
    peak = _iree_peak() if device == "cpu" else 0
    forward = session.compile(graph, params=params)
    gradient = session.compile(rlx.grad_with_loss(graph, list(params)), params=params)
    tasks = {
        "forward": lambda: forward.run(inputs)[0],
        "gradient": lambda: gradient.run(inputs),
        "step": lambda: step(inputs)["loss"],
    }
    return tasks, lambda: peak


def _iree_peak() -> int:
    from rlx.targets.iree.devices import device

    return device("local-sync", 1).allocator.statistics["device_bytes_peak"]


def _jax(model: TrainingModel, params: Any, inputs: Any) -> tuple[dict[str, Any], Callable[[], int]]:
    import jax
    import optax

    weights, batch = ({k: jax.numpy.asarray(v) for k, v in arrays.items()} for arrays in (params, inputs))
    optimizer = optax.adamw(_LEARNING_RATE, weight_decay=0.01)
    loss, gradient = jax.jit(model.jax_loss), jax.jit(jax.value_and_grad(model.jax_loss))

    def update(weights: Any, state: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(model.jax_loss)(weights, batch)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, value

    held = [{k: jax.numpy.array(v) for k, v in weights.items()}, optimizer.init(weights)]
    compiled = jax.jit(update, donate_argnums=(0, 1)).lower(*held, batch).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    peak = analysis.argument_size_in_bytes + analysis.output_size_in_bytes + analysis.temp_size_in_bytes
    peak -= analysis.alias_size_in_bytes

    def step() -> float:
        held[0], held[1], value = compiled(*held, {k: np.asarray(v) for k, v in inputs.items()})
        return float(value)

    tasks = {
        "forward": lambda: float(loss(weights, inputs)),
        "gradient": lambda: jax.block_until_ready(gradient(weights, inputs)),
        "step": step,
    }
    return tasks, lambda: peak
