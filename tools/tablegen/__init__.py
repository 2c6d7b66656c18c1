"""A reader for the subset of TableGen that `dialect/*.td` uses, so that adding an op does not require LLVM.

It returns the records of `llvm-tblgen --dump-json` as Python objects (`records.py`). It refuses unsupported syntax by
name, and never reads a file differently from LLVM. `lexer.py` produces tokens, `parser.py` the tree defined in
`syntax.py`, and `evaluate.py` the records. `include/` has the MLIR definitions that the dialect uses. If LLVM is
installed, a test compares both readers (`tests/dialect/test_generated.py`).
"""

from tools.tablegen.evaluate import read
from tools.tablegen.records import Dag, Record, Records, from_json

__all__ = ["Dag", "Record", "Records", "from_json", "read"]
