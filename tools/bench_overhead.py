"""The overhead of a call: the sum of four numbers and four numbers, from NumPy to NumPy."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tools.bench_common import Figure, cpu_seconds, worker

PEERS = ("rlx", "onnxruntime", "jax")
LIMIT_US = 15.0
_CALLS = 5000


def measure(rounds: int) -> Iterator[Figure]:
    """Yield the time of one call, for RLX and the others."""
    with contextlib.ExitStack() as stack:
        workers = {peer: stack.enter_context(worker(_open, peer)) for peer in PEERS}
        seconds: dict[str, list[float]] = {peer: [] for peer in PEERS}
        for turn in range(rounds + 1):
            for peer, w in workers.items():
                taken = w.submit(_turn).result()
                if turn:  # the first turn is for warming up
                    seconds[peer].append(taken)
    for peer in PEERS:
        limit = LIMIT_US if peer == "rlx" else None
        yield Figure(f"call of a trivial graph: {peer}", statistics.median(seconds[peer]) * 1e6, "µs", limit)


_call: Callable[[], Any]


def _open(peer: str) -> None:
    global _call
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    _call = {"rlx": _rlx, "onnxruntime": _onnxruntime, "jax": _jax}[peer](x, y)
    if _call().tolist() != [1, 2, 3, 4]:
        raise ArithmeticError(f"{peer} adds wrongly")


def _turn() -> float:
    return cpu_seconds(_call, _CALLS)


def _rlx(x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    import rlx

    g = rlx.Graph("add")
    g.set_outputs([g.input("x", (4,)) + g.input("y", (4,))])
    program = rlx.Session(threads=1).compile(g)
    return lambda: program.run({"x": x, "y": y})[0]


def _onnxruntime(x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    from onnx import TensorProto, helper

    from tools.bench_minilm import onnx_session

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xyz"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "add", values[:2], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = onnx_session(model.SerializeToString())
    return lambda: session.run(None, {"x": x, "y": y})[0]


def _jax(x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    import jax

    add = jax.jit(lambda x, y: x + y)
    return lambda: np.asarray(add(x, y))
