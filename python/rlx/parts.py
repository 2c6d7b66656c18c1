"""The packages of RLX, by name, for code that must not import them directly.

Cards of ops, passes and targets register themselves when their file is imported. The registries come before those files
in the import order, so they know only the names listed here. The same holds for methods whose implementation is in a
later package.
"""

# The module that imports MLIR's bindings.
BINDINGS = "rlx.mlir"
# Importing these packages registers the card of every op.
CARDS = ("rlx.ops", "rlx.blocks")
# The package of functions that emit other ops. `rlx.ops` imports all its modules.
FUNCTIONS = "rlx.functions"
# Importing this module attaches the ops' verifiers to the MLIR context when it is created.
VERIFIERS = "rlx.ir.op.registry"
# The module that evaluates ops by graphs.
EVALUATOR = "rlx.ir.graph.evaluate"
# The module that defines block modules: `Graph.define`.
BLOCK_MODULES = "rlx.blocks.graph_module"
# The package that answers wrong calls with the right ones.
ANSWERS = "rlx.answers"
# The module that `x.__array_namespace__()` returns.
ARRAY_API = "rlx.array_api"
# The package that runs passes: `GraphModule.lower`.
PASS_RUNNER = "rlx.passes"
# The package that exports graphs to JAX: `Graph.to_jax`.
JAX = "rlx.runtime.jax"
# A file in one of these packages may define the pass named after it, with the prefix `rlx-`.
PASSES = (
    "rlx.passes",
    *(f"rlx.passes.{kind}" for kind in ("simplification", "recognition", "fusion", "dtypes", "integer", "checking")),
    *("rlx.transforms", "rlx.plan.passes"),
    *("rlx.targets.linalg", "rlx.targets.stablehlo", "rlx.targets.c", "rlx.targets.fpga"),
)
# Each subpackage is a back end: `rlx-iree-scatter` is the pass of `iree/passes/scatter.py`.
BACKENDS = "rlx.targets"
# The registry of the targets of all back ends.
TARGETS = "rlx.targets.registry"
