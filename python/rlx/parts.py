"""The packages that RLX is put together from, by name, for code that finds them without importing from its right.

Cards of ops, passes and targets register themselves when the file that defines them is imported. The code that keeps the
registries stands to the left of those files in the import order, and so knows only the names that are listed here.
"""

# What imports the bindings of MLIR.
BINDINGS = "rlx.mlir"
# Importing these registers the card of every op.
CARDS = ("rlx.ops", "rlx.blocks")
# Importing this has the verifiers of the ops attached to the MLIR context when that is made.
VERIFIERS = "rlx.ir.op.registry"
# A file in one of these may define the pass that is called as the file is, with the prefix `rlx-`.
PASSES = (
    "rlx.passes",
    *(f"rlx.passes.{kind}" for kind in ("simplification", "recognition", "fusion", "dtypes", "integer", "checking")),
    *("rlx.transforms", "rlx.plan.passes", "rlx.lower"),
)
# Each package in it is a back end: `rlx-iree-scatter` is the pass of `iree/passes/scatter.py`.
BACKENDS = "rlx.backends"
# What knows the targets of all back ends by name.
TARGETS = "rlx.backends.registry"
