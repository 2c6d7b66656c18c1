"""Support for `_rlx_ops_gen.py`: the provider's module of the same name, under the name that mlir-tblgen writes."""

from __future__ import annotations

from rlx.mlir import ods_common

_common = ods_common()
_cext = _common._cext
equally_sized_accessor = _common.equally_sized_accessor
get_default_loc_context = _common.get_default_loc_context
get_op_result_or_op_results = _common.get_op_result_or_op_results
get_op_result_or_value = _common.get_op_result_or_value
get_op_results_or_values = _common.get_op_results_or_values
segmented_accessor = _common.segmented_accessor

__all__ = [
    "_cext",
    "equally_sized_accessor",
    "get_default_loc_context",
    "get_op_result_or_op_results",
    "get_op_result_or_value",
    "get_op_results_or_values",
    "segmented_accessor",
]
