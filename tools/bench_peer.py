"""One library that runs the sentence encoder, in a process of its own: what `bench_minilm.py` talks to.

Requests and replies are JSON, one a line: `{"do": "prepare", "shape": [b, s]}` compiles and answers with the
embeddings of fixed sentences; `{"do": "time", "shape": [b, s], "calls": n}` answers with seconds per call.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

# Beside the pinning, since some of these count cores, not what a process may use.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
PEERS = ("rlx", "onnxruntime", "onnxruntime-fused", "jax")

Encode = Callable[[np.ndarray, np.ndarray], np.ndarray]


def encoder(peer: str, model: Path) -> Callable[[int, int], Encode]:
    """A function that makes the encoder for a batch and a length."""
    from rlx.models.bert import BertConfig
    from rlx.runtime.weights import read_safetensors

    if peer == "rlx":
        return _rlx(model)
    config = BertConfig.load(model / "config.json")
    weights = read_safetensors(model / "model.safetensors")
    if peer == "jax":
        from tools.bench_jax import jax_sentence_encoder

        encode = jax_sentence_encoder(config, weights)
    else:
        from tools.bench_onnx import onnx_sentence_encoder

        encode = _onnxruntime(
            onnx_sentence_encoder(config, weights, "fused" if peer.endswith("fused") else "standard")
        )
    return lambda batch, length: encode


def _rlx(model: Path) -> Callable[[int, int], Encode]:
    from rlx.models.embedder import SentenceEmbedder
    from rlx.runtime.session import Session

    embedder = SentenceEmbedder(model, Session(threads=1))

    def make(batch: int, length: int) -> Encode:
        program = embedder.program(batch, length)
        return lambda ids, mask: program.run({"ids": ids, "mask": mask})[0]

    return make


def _onnxruntime(model: bytes) -> Encode:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: session.run(["embedding"], {"ids": ids, "mask": mask})[0]


def batch_of(batch: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and mask: all rows but the first are a little shorter than `length`."""
    rng = np.random.default_rng(batch * 1000 + length)
    ids = rng.integers(1000, 30000, (batch, length), dtype=np.int32)
    mask = np.ones((batch, length), np.int32)
    for row in range(1, batch):
        mask[row, length - row % (length // 4) :] = 0
    return ids * mask, mask


def main() -> None:
    """Serve requests until standard input ends."""
    peer: Literal["rlx"] | str = sys.argv[1]
    # Whatever a library prints must not come between the replies.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    make = encoder(peer, Path(sys.argv[2]))
    prepared: dict[tuple[int, int], tuple[Encode, np.ndarray, np.ndarray]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        shape = tuple(request["shape"])
        if request["do"] == "prepare":
            ids, mask = batch_of(*shape)
            encode = make(*shape)
            prepared[shape] = encode, ids, mask
            reply: Any = encode(ids, mask).tolist()
        else:
            encode, ids, mask = prepared[shape]
            started = time.process_time()
            for _ in range(request["calls"]):
                encode(ids, mask)
            reply = (time.process_time() - started) / request["calls"]
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
