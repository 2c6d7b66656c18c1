"""Runs compiled programs where there is no compiler.

`load` needs NumPy and IREE's runtime, and imports neither MLIR's bindings nor a compiler nor JAX: it is what a machine needs on
which programs run that were compiled elsewhere. The distribution `rlx-deploy` has this part of RLX alone.
"""

from rlx.deploy.loading import load as load

__all__ = ["load"]
