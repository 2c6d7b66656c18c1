"""The packages that RLX is put together from, by name, for code that finds them without importing from its right.

Cards of ops, passes and targets register themselves when the file that defines them is imported. The code that keeps the
registries stands to the left of those files in the import order, and so knows only the names that are listed here. So do
classes with a method that does what a package to their right is for.
"""

# What imports the bindings of MLIR.
BINDINGS = "rlx.mlir"
# Importing these registers the card of every op.
CARDS = ("rlx.ops", "rlx.blocks")
# Importing this has the verifiers of the ops attached to the MLIR context when that is made.
VERIFIERS = "rlx.ir.op.registry"
# What evaluates ops by graphs.
EVALUATOR = "rlx.ir.graph.evaluate"
# What has modules of blocks: `Graph.define`.
BLOCK_MODULES = "rlx.blocks.graph_module"
# What `x.__array_namespace__()` gives.
ARRAY_API = "rlx.array_api"
# What runs passes: `GraphModule.lower`.
PASS_RUNNER = "rlx.passes"
# What gives graphs to JAX: `Graph.to_jax`.
JAX = "rlx.runtime.jax"
# A file in one of these may define the pass that is called as the file is, with the prefix `rlx-`.
PASSES = (
    "rlx.passes",
    *(f"rlx.passes.{kind}" for kind in ("simplification", "recognition", "fusion", "dtypes", "integer", "checking")),
    *("rlx.transforms", "rlx.plan.passes"),
    *("rlx.targets.linalg", "rlx.targets.stablehlo", "rlx.targets.c"),
)
# Each package in it is a back end: `rlx-iree-scatter` is the pass of `iree/passes/scatter.py`.
BACKENDS = "rlx.targets"
# What knows the targets of all back ends by name.
TARGETS = "rlx.targets.registry"
