"""Answers to wrong calls: names, keywords and calls of other libraries, and the RLX calls that replace them.

This package is last in the import order and is loaded when an error is made, through `rlx.support.answers`. The tables
in `tables/` are text, which `reader.py` reads.
"""

from __future__ import annotations

from rlx.answers.calls import advice as advice
from rlx.answers.calls import call_problem as call_problem
from rlx.answers.calls import order_hint as order_hint
from rlx.answers.modules import module_problem as module_problem
from rlx.answers.names import attribute_problem as attribute_problem
from rlx.answers.names import counterpart as counterpart
from rlx.answers.names import name_problem as name_problem
