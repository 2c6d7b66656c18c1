"""RLX: a small ML compiler on MLIR's Python bindings, from a model to every device.

Every public name is an attribute of this package and is imported on first use. `import rlx` alone imports neither MLIR
nor a compiler.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

# Only modules directly in this package are imported here: a thread that imports `rlx.a.b` holds its lock and waits for
# `rlx`, so that an import of `rlx.a.b` here could deadlock.
from rlx.parts import ANSWERS as _ANSWERS
from rlx.version import __version__ as __version__

# public name -> the module that defines it
_HOMES = {
    **dict.fromkeys(("DType", "dtype"), "rlx.ir.dtype"),
    "promote": "rlx.ir.promotion",
    "Shape": "rlx.ir.shape",
    "Mesh": "rlx.ir.sharding",
    "Tensor": "rlx.ir.graph.builder",
    "Graph": "rlx.ir.graph.graph",
    "CustomOp": "rlx.ir.op.custom",
    "parse": "rlx.ir.graph.parse",
    "evaluate": "rlx.ir.graph.evaluate",
    "eager": "rlx.ir.graph.eager",
    "inspect_graph": "rlx.ir.graph.listing",
    "inspect_diff": "rlx.ir.graph.listing_diff",
    **dict.fromkeys(
        (
            "Error",
            "ShapeError",
            "StageError",
            "ParseError",
            "VerificationError",
            "PassError",
            "CompileError",
            "UnsupportedError",
            "ExecutionError",
        ),
        "rlx.support.errors",
    ),
    "from_stablehlo": "rlx.importers.stablehlo",
    "from_jax": "rlx.importers.jax",
    "from_torch": "rlx.importers.torch",
    **dict.fromkeys(("jax_function", "JaxFunction"), "rlx.runtime.jax"),
    "from_onnx": "rlx.importers.onnx",
    "GraphModule": "rlx.blocks.graph_module",
    **dict.fromkeys(("Pipeline", "CompileResult"), "rlx.runtime.pipeline"),
    "KernelDispatchPolicy": "rlx.targets.dispatch",
    **dict.fromkeys(("kernel", "CpuKernel"), "rlx.kernels.registry"),
    "Device": "rlx.runtime.device",
    "DeviceArray": "rlx.runtime.device_array",
    "Program": "rlx.runtime.program",
    "Session": "rlx.runtime.session",
    "load": "rlx.deploy",
    **dict.fromkeys(("jit", "Jit"), "rlx.runtime.jit"),
    "call": "rlx.transforms.call",
    **dict.fromkeys(("model", "Model", "Input", "Param"), "rlx.runtime.model"),
    **dict.fromkeys(("grad", "grad_with_loss"), "rlx.transforms.grad"),
    "jvp": "rlx.transforms.jvp",
    "vjp": "rlx.transforms.vjp",
    "vmap": "rlx.transforms.vmap",
    "hvp": "rlx.transforms.hvp",
    "checkpoint": "rlx.transforms.checkpoint",
    "jacfwd": "rlx.transforms.jacfwd",
    "jacrev": "rlx.transforms.jacrev",
    "hessian": "rlx.transforms.hessian",
    "nth_order_grad": "rlx.transforms.nth_order_grad",
    "directional_nth_grad": "rlx.transforms.directional_nth_grad",
    **dict.fromkeys(("linearize", "Linearized"), "rlx.transforms.linearize"),
    "calibrate": "rlx.quantization.calibrate",
    "quantize": "rlx.quantization.quantize",
    "quantization_sensitivity": "rlx.quantization.sensitivity",
    **dict.fromkeys(("observe_ranges", "integer_only", "quantizations", "Quantization"), "rlx.quantization.integer"),
    **dict.fromkeys(("search_bits", "BitWidths"), "rlx.quantization.bit_widths"),
    "ValueRanges": "rlx.passes.integer.value_ranges",
    "CalibrationRecord": "rlx.passes.dtypes.quantization_record",
    "Tick": "rlx.tick",
}
_MODULES = (
    "ops",
    "array_api",
    "linalg",
    "sparse",
    "blocks",
    "weights",
    "nn",
    "importers",
    "passes",
    "plan",
    "train",
    "models",
    "llm",
    "serve",
    "deploy",
    "mlir",
)
# Modules that do not use graphs. They are available without MLIR.
_WITHOUT_GRAPHS = (
    *("rlx.deploy", "rlx.ir.dtype", "rlx.support.errors", "rlx.ir.shape"),
    *("rlx.runtime.device", "rlx.runtime.device_array", "rlx.runtime.program"),
)


@functools.cache
def _homes() -> dict[str, str]:
    """Return the module that defines each public name that is not a module, with those of the dtypes."""
    rows = importlib.import_module("rlx.dialect.dtypes").ROWS
    return dict.fromkeys(("bool_" if row.name == "bool" else row.name for row in rows), "rlx.ir.dtype") | _HOMES


def public_names() -> dict[str, str]:
    """Return the module that defines each public name."""
    return {**_homes(), **dict.fromkeys(_MODULES, "rlx"), "__version__": "rlx.version"}


def __getattr__(name: str) -> Any:
    try:
        return _loaded(name)
    except ModuleNotFoundError as problem:
        if not (problem.name or "").startswith("rlx."):
            raise
        message = f"rlx.{name} is not there: this is rlx-deploy, which only runs compiled programs (install rlx itself)"
        raise AttributeError(message) from None


def _loaded(name: str) -> Any:
    """Import a public name."""
    homes = _homes()
    if name in homes:
        if homes[name] not in _WITHOUT_GRAPHS:
            importlib.import_module("rlx.blocks")  # import the cards first: they install the op methods on Graph
            _show_graphs()
        value = getattr(importlib.import_module(homes[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"rlx.{name}")
    else:
        if name.startswith("_"):
            raise AttributeError(f"module 'rlx' has no attribute '{name}'")
        raise importlib.import_module(_ANSWERS).module_problem("rlx", name, (*homes, *_MODULES))
    globals()[name] = value
    return value


def _show_graphs() -> None:
    """Install notebook rendering on graphs. The drawing code imports `Graph`, so `Graph` cannot import it."""
    graph, listing = (
        importlib.import_module("rlx.ir.graph.graph").Graph,
        importlib.import_module("rlx.ir.graph.listing").GraphReport,
    )
    module = importlib.import_module("rlx.blocks.graph_module").GraphModule
    for shown in (graph, listing, module):
        shown._repr_html_, shown._repr_svg_ = _graph_html, _graph_svg


def _drawable(thing: Any) -> Any:
    return getattr(thing, "_graph", thing)  # a module's graph


def _graph_html(thing: Any) -> str:
    return importlib.import_module("rlx.report.graph_html").graph_html(_drawable(thing))


def _graph_svg(thing: Any) -> str | None:
    return importlib.import_module("rlx.report.graph_html").graph_svg(_drawable(thing))


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes(), *_MODULES})
