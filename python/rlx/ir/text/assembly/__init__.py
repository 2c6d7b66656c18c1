"""The readable syntax of rlx ops, implemented by rewriting text before MLIR parses it and after MLIR prints it.

For a dialect that is registered at run time, MLIR supports only the generic form, `"rlx.matmul"(%x, %w) : …`. `read`
converts the readable form, `rlx.matmul(%x, %w) : …`, to the generic one, and `write` does the reverse. All other text
is unchanged. The grammar is in docs/assembly.md.
"""

from rlx.ir.text.assembly.positions import GenericText
from rlx.ir.text.assembly.printer import write
from rlx.ir.text.assembly.reader import read

__all__ = ["GenericText", "read", "write"]
