"""The handler for `rlx.targets.worker` that runs libtpu.

A request is ``{"kind": "compile", "topology": "v5e:1x1", "arguments": [[[2, 3], "float32"], …], "results": […]}`` with a
portable StableHLO artifact as body. The body of the reply is the serialised executable. The header has the facts that the
compiler reports.

libtpu runs in a separate process for several reasons: only one process can use it, it locks files in the temporary folder, it
writes to standard error, and it looks for the TPU of a cloud machine unless environment variables describe the TPU.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Callable
from typing import Any

_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",  # topologies of the platform `tpu` remain available
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # several processes may compile, because none uses a TPU
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}


def make(*_: str) -> Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]]:
    """Load JAX, and return the function that answers requests. The first request loads libtpu."""
    os.environ.update(_ENVIRONMENT)
    jax: Any = importlib.import_module("jax")
    numpy: Any = importlib.import_module("jax.numpy")
    importlib.import_module("ml_dtypes")
    topologies: Any = importlib.import_module("jax.experimental.topologies")
    serialize: Any = importlib.import_module("jax.experimental.serialize_executable")
    export: Any = importlib.import_module("jax.export")
    jax.config.update("jax_enable_x64", True)

    def specs(types: Any, sharding: Any = None) -> list[Any]:
        return [jax.ShapeDtypeStruct(tuple(dims), numpy.dtype(kind), sharding=sharding) for dims, kind in types]

    def answer(header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        results = specs(header["results"])
        # An exported function with this signature, whose module is then replaced: the public way to pass StableHLO to JAX.
        stand_in = jax.jit(lambda *_: [numpy.zeros(r.shape, r.dtype) for r in results])
        made = export.export(stand_in, platforms=["tpu"])(*specs(header["arguments"]))
        kept = tuple(range(len(header["arguments"])))
        made = dataclasses.replace(made, mlir_module_serialized=body, module_kept_var_idx=kept, _get_vjp=None)
        try:
            topology = topologies.get_topology_desc(header["topology"], platform="tpu")
            one = jax.sharding.SingleDeviceSharding(topology.devices[0])
            compiled = jax.jit(made.call, keep_unused=True).lower(*specs(header["arguments"], one)).compile()
        except (RuntimeError, ValueError, NotImplementedError) as problem:
            return {"outcome": "refused", "message": str(problem)[:4000]}, b""
        memory, cost = compiled.memory_analysis(), compiled.cost_analysis() or {}
        if isinstance(cost, list):
            cost = cost[0]
        facts = {
            "kind": topology.devices[0].device_kind,
            "arguments": int(memory.argument_size_in_bytes),
            "outputs": int(memory.output_size_in_bytes),
            "temporary": int(memory.temp_size_in_bytes),
            "code": int(memory.generated_code_size_in_bytes),
            "flops": float(cost.get("flops", -1.0)),
            "bytes": float(cost.get("bytes accessed", -1.0)),
            "seconds": float(cost.get("optimal_seconds", -1.0)),
        }
        return {"outcome": "ok", "facts": facts}, serialize.serialize(compiled)[0]

    return answer
