"""Train a small transformer on many devices: data parallel along one axis of a mesh, tensor parallel along the other.

    python examples/distributed_training.py                       # eight virtual devices on this CPU
    python examples/distributed_training.py --data=8 --model=1    # data parallel only
    python examples/distributed_training.py --real                # the devices that JAX finds: GPUs, TPUs, several hosts

The text is synthetic: each line counts up from a digit, modulo ten. The loss of the last digits goes to zero.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import numpy as np

import rlx

VOCABULARY, LENGTH, WIDTH, HEADS, HIDDEN, LAYERS = 10, 16, 64, 4, 128, 2


def model(mesh: rlx.Mesh | None, batch: int) -> rlx.Graph:
    """Return the graph of the loss of the next digits.

    In each layer the columns of the first product and the rows of the second are split over `model`.
    So devices do not communicate between the two, and one sum over `model` follows each pair, as in Megatron-LM
    (M. Shoeybi et al., 2019). Without a mesh it is the same model on one device.
    """
    g = rlx.Graph("digits", mesh=mesh)

    def spread(*axes: str | None) -> Any:
        return None if mesh is None else axes

    def weight(name: str, shape: tuple[int, ...], *axes: str | None) -> Any:
        return g.param(name, shape, sharding=spread(*axes))

    tokens = g.input("tokens", (batch, LENGTH), "i32", sharding=spread("data"))
    labels = g.input("labels", (batch, LENGTH), "i32", sharding=spread("data"))
    x = g.gather(weight("embedding", (VOCABULARY, WIDTH)), tokens) + weight("positions", (LENGTH, WIDTH))
    for i in range(LAYERS):
        with g.named(f"layer{i}"):
            normed = g.rms_norm(x, weight(f"layer{i}.norm1", (WIDTH,)))
            q, k, v = (normed @ weight(f"layer{i}.{n}", (WIDTH, WIDTH), None, "model") for n in "qkv")
            mixed = g.attention(q, k, v, num_heads=HEADS, head_dim=WIDTH // HEADS, mask_kind="causal")
            x = x + mixed @ weight(f"layer{i}.o", (WIDTH, WIDTH), "model", None)
            hidden = g.gelu(
                g.rms_norm(x, weight(f"layer{i}.norm2", (WIDTH,)))
                @ weight(f"layer{i}.up", (WIDTH, HIDDEN), None, "model")
            )
            if mesh is not None:
                hidden = g.shard(hidden, ("data", None, "model"))
            x = x + hidden @ weight(f"layer{i}.down", (HIDDEN, WIDTH), "model", None)
    logits = g.rms_norm(x, weight("norm", (WIDTH,))) @ weight("head", (WIDTH, VOCABULARY))
    g.set_outputs({"loss": g.cross_entropy(g.reshape(logits, (-1, VOCABULARY)), g.reshape(labels, (-1,)))})
    return g


def first_params(graph: rlx.Graph) -> dict[str, np.ndarray]:
    """Return the initial weights, the same in every process: ones for the norms, small random numbers for the rest."""
    rng = np.random.default_rng(0)
    values = {}
    for a in graph.params:
        sizes = a.shape.static
        random = rng.standard_normal(sizes) * (0.5 / np.sqrt(sizes[0]))
        values[a.name] = (np.ones(sizes) if len(sizes) == 1 else random).astype(np.float32)
    return values


def batch_of(rng: np.random.Generator, batch: int) -> dict[str, np.ndarray]:
    """Return lines of digits, and the digit that follows each."""
    lines = (rng.integers(0, 10, (batch, 1)) + np.arange(LENGTH + 1)) % 10
    return {"tokens": lines[:, :-1].astype(np.int32), "labels": lines[:, 1:].astype(np.int32)}


def train(mesh: rlx.Mesh, steps: int, batch: int = 32) -> list[float]:
    """Train on the devices that JAX has, and return the losses of all steps."""
    import jax

    graph = model(mesh, batch)
    step = rlx.train.JaxStep(graph, rlx.train.AdamW(3e-3, weight_decay=0.01))
    shardings = step.shardings()
    state = step.init(first_params(graph))
    print(f"{mesh}: {jax.device_count()} devices of {jax.process_count()} processes")
    for name in ("embedding", "layer0.q", "layer0.down"):
        print(f"  {name}: {state[name].shape}, on each device {state[name].addressable_shards[0].data.shape}")
    advance = jax.jit(step, donate_argnums=0)
    losses, rng = [], np.random.default_rng(1)
    for i in range(steps):
        state, results = advance(state, shardings.put(batch_of(rng, batch)))
        losses.append(float(results["loss"]))
        if i % 10 == 0 or i == steps - 1:
            print(f"step {i}: loss {losses[-1]:.4f}")
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=int, default=4, help="devices along the axis of the batch")
    parser.add_argument("--model", type=int, default=2, help="devices along the axis of the weights")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--real", action="store_true", help="the devices that JAX finds, instead of virtual ones")
    arguments = parser.parse_args()
    if not arguments.real:
        if "jax" in sys.modules:
            raise SystemExit("JAX has been imported already: virtual devices are made when it starts")
        count = arguments.data * arguments.model
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    train(rlx.Mesh({"data": arguments.data, "model": arguments.model}), arguments.steps)


if __name__ == "__main__":
    main()
