"""One process of a joint training, with four devices: `python -m tests.train.two_processes PORT NUMBER FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import rlx
from examples import distributed_training as example
from rlx.train import AdamW, JaxStep
from tests.train.eight_devices import BATCH, EMA, MESHES, batches, make_small


def main(port: str, number: int, file: Path) -> None:
    import jax

    jax.distributed.initialize(f"localhost:{port}", 2, number, initialization_timeout=60)
    make_small()
    step = JaxStep(example.model(rlx.Mesh(MESHES["both"]), BATCH), AdamW(1e-2), ema=EMA, clip_norm=1.0)
    shardings = step.shardings()
    state = step.init(example.first_params(example.model(None, BATCH)))
    advance, losses = jax.jit(step, donate_argnums=0), []
    for i, batch in enumerate(batches()):
        placed = shardings.put(batch)
        if i:  # each has its own half of the batch
            halves = {n: a[number * BATCH // 2 : (number + 1) * BATCH // 2] for n, a in batch.items()}
            placed = {
                n: jax.make_array_from_process_local_data(placed[n].sharding, half, batch[n].shape)
                for n, half in halves.items()
            }
        state, results = advance(state, placed)
        losses.append(float(results["loss"]))
    local = len(state["layer0.q"].addressable_shards)
    file.write_text(json.dumps({"losses": losses, "devices": jax.device_count(), "local": local}))
    assert not np.isnan(losses).any()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
