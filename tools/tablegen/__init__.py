"""A reader of the part of TableGen that `dialect/*.td` is written in, so that a new op needs no LLVM.

It gives the records that `llvm-tblgen --dump-json` gives, as Python objects (`records.py`). What it does not know it refuses,
by name: it never reads a file in another way than LLVM does. `lexer.py` makes tokens, `parser.py` the tree that `syntax.py`
describes, and `evaluate.py` records of that. `include/` has the definitions of MLIR's that the dialect builds on, as far as it
uses them. Where LLVM is installed, a test compares both readers (`tests/dialect/test_generated.py`).
"""

from tools.tablegen.evaluate import read
from tools.tablegen.records import Dag, Record, Records, from_json

__all__ = ["Dag", "Record", "Records", "from_json", "read"]
