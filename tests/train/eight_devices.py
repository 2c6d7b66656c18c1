"""Computations on eight virtual devices, in a separate process: `python -m tests.train.eight_devices FOLDER`.

It writes `found.json` and `arrays.npz`, which `test_distributed.py` compares with one device and with the evaluator.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from examples import distributed_training as example
from rlx.train import AdamW, JaxStep

MESHES = {"both": {"data": 4, "model": 2}, "data": {"data": 8, "model": 1}}
BATCH, STEPS = 8, 3
EMA = 0.9


def make_small() -> None:
    """Make the model of the example small."""
    example.LENGTH, example.WIDTH, example.HIDDEN, example.LAYERS = 6, 16, 32, 1


def batches() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [example.batch_of(rng, BATCH) for _ in range(STEPS)]


def collectives(text: str | None) -> dict[str, int]:
    """Return the number of collectives of each kind in a compiled program."""
    found = re.findall(
        r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(", text or ""
    )
    return {kind: found.count(kind) for kind in set(found)}


def parts(arrays: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the shape of each array, of its part on a device, and the number of different parts."""
    return {
        n: [a.shape, a.addressable_shards[0].data.shape, len({str(s.index) for s in a.addressable_shards})]
        for n, a in arrays.items()
    }


def trained(axes: dict[str, int]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    import jax

    step = JaxStep(example.model(rlx.Mesh(axes), BATCH), AdamW(1e-2), ema=EMA, clip_norm=1.0)
    shardings = step.shardings()
    state = step.init(example.first_params(example.model(None, BATCH)))
    advance, losses = jax.jit(step), []
    text = advance.lower(state, shardings.put(batches()[0])).compile().as_text()
    for batch in batches():
        state, results = advance(state, shardings.put(batch))
        losses.append(float(results["loss"]))
    found = {"losses": losses, "parts": parts(state), "collectives": collectives(text)}
    return found, {n: np.asarray(a) for n, a in state.items()}


def layers() -> rlx.Graph:
    g = rlx.Graph("layers", mesh=rlx.Mesh(MESHES["both"]))
    x, w = g.input("x", (8, 16), sharding=("data",)), g.param("w", (16, 32), sharding=(None, "model"))
    hidden = g.shard(g.gelu(x @ w), ("data", "model"))
    g.set_outputs([hidden @ g.param("v", (32, 4), sharding=("model",)), g.mean(hidden)])
    return g


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {a.name: rng.standard_normal(a.shape.static).astype(np.float32) for a in layers().arguments}


def called() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Use `to_jax` with JAX's features: in_shardings, shard_map, constraints, gradients, batches, blobs."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    f, given = layers().to_jax(), values()
    shardings = f.shardings()
    placed = shardings.put(given)
    params = {n: placed[n] for n in "wv"}
    jitted = jax.jit(lambda x, p: f(x, params=p), in_shardings=(shardings.inputs[0], shardings.params))
    results = {"in_shardings": jitted(given["x"], {n: given[n] for n in "wv"})[0]}

    over_data = NamedSharding(shardings.mesh, PartitionSpec("data"))
    whole = NamedSharding(shardings.mesh, PartitionSpec())

    def constrained(x: Any) -> Any:
        x = jax.lax.with_sharding_constraint(x * 1.0, over_data)
        return jax.lax.with_sharding_constraint(f(x, params=params)[0], over_data)

    results["constrained"] = jax.jit(constrained)(given["x"])
    whole_params = {n: jax.device_put(given[n], whole) for n in "wv"}
    small = rlx.Graph("part", mesh=rlx.Mesh(MESHES["both"]))
    x, w = small.input("x", (2, 16)), small.param("w", (16, 32))
    small.set_outputs([small.shard(small.gelu(x @ w), (None, "model")) @ small.param("v", (32, 4))])
    part = small.to_jax()
    results["shard_map"] = jax.jit(
        jax.shard_map(
            lambda x, p: part(x, params=p)[0],
            mesh=shardings.mesh,
            in_specs=(PartitionSpec("data"), PartitionSpec()),
            out_specs=PartitionSpec("data"),
            check_vma=False,
        )
    )(placed["x"], whole_params)
    gradients = jax.jit(jax.grad(lambda p, x: f(x, params=p)[1]))(params, placed["x"])
    results |= {f"grad_{n}": g for n, g in gradients.items()}
    other = jax.sharding.Mesh(np.array(jax.devices()).reshape(8), ("other",))  # 8 devices, but other axes
    rows = jax.device_put(given["x"], NamedSharding(other, PartitionSpec("other")))
    plain = jax.device_put({n: given[n] for n in "wv"}, NamedSharding(other, PartitionSpec()))
    results["another_mesh"] = jax.jit(lambda x, p: f(x, params=p)[0])(rows, plain)
    pair = jax.jit(jax.vmap(lambda x: f(x, params=params)[0]))(np.stack([given["x"], given["x"]]))
    results["batched"] = pair[1]
    blob = jax.export.deserialize(bytearray(f.export()))
    results["blob"] = jax.jit(lambda x, p: blob.call(x, params=p))(placed["x"], params)[0]
    found = {"parts": parts(results), "devices": blob.nr_devices}
    return found, {n: np.asarray(a) for n, a in results.items()}


def partitioned(program: bytes | str) -> dict[str, int]:
    """Return the collectives of a file of the target `stablehlo`, which XLA compiles for the devices of the mesh in it."""
    import jax
    import jax.extend.backend
    from jax.extend.mlir import ir
    from jax.interpreters.mlir import make_ir_context
    from jaxlib import xla_client

    if isinstance(program, str):
        with make_ir_context():
            module = ir.Module.parse(program)
            program = str(module).encode()
    client = jax.extend.backend.get_backend("cpu")
    chosen = jax.extend.backend.get_compile_options(
        num_replicas=1, num_partitions=8, device_assignment=np.arange(8).reshape(1, 8)
    )
    options: Any = chosen.executable_build_options
    options.use_spmd_partitioning = options.use_shardy_partitioner = True
    loaded = client.compile_and_load(program, xla_client.DeviceList(tuple(client.devices())), chosen)
    return collectives(loaded.hlo_modules()[0].to_string())


def main(folder: Path) -> None:
    make_small()
    found: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, axes in MESHES.items():
        found[name], state = trained(axes)
        arrays |= {f"{name}:{n}": a for n, a in state.items()}
    found["called"], results = called()
    arrays |= {f"called:{n}": a for n, a in results.items()}
    found["files"] = [partitioned((folder / "layers.mlirbc").read_bytes())]
    found["files"].append(partitioned((folder / "layers.txt").read_text()))
    sdy = (folder / "layers.sdy").read_text()
    assert "@mesh" in sdy and "sdy.mesh" in sdy
    found["files"].append(partitioned(sdy))
    (folder / "found.json").write_text(json.dumps(found))
    np.savez(folder / "arrays.npz", **arrays)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
