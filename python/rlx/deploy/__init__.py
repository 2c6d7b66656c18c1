"""Execution of compiled programs without a compiler.

`load` needs NumPy and IREE's runtime, and imports neither MLIR's bindings nor a compiler nor JAX. This part of RLX is
for machines that only run programs compiled elsewhere. The distribution `rlx-deploy` contains only this part.
"""

from rlx.deploy.loading import load as load

__all__ = ["load"]
