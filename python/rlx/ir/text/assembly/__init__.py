"""The readable form of rlx ops: text is rewritten before MLIR parses it and after MLIR has printed it.

For a dialect that is registered at run time, MLIR has only the generic form, `"rlx.matmul"(%x, %w) : …`. `read` turns
the readable form, `rlx.matmul(%x, %w) : …`, into the generic one, and `write` does the reverse; everything else in the
text stays as it is. docs/assembly.md has the grammar.
"""

from rlx.ir.text.assembly.positions import GenericText
from rlx.ir.text.assembly.printer import write
from rlx.ir.text.assembly.reader import read

__all__ = ["GenericText", "read", "write"]
