"""RLX for the test suite of the array API standard (data-apis/array-api-tests): see docs/array-api.md.

The suite compares `x.shape` of tensors of different dtypes; a shape of RLX has a dtype, which this module leaves out of the
comparison. All tensors have values: everything is run by the evaluators.
"""

from __future__ import annotations

import rlx
from rlx import array_api

globals().update({name: getattr(array_api, name) for name in dir(array_api) if name != "__name__"})


def _same_sizes(self: rlx.Shape, other: object) -> bool:
    return tuple(self.dims) == tuple(other) if isinstance(other, tuple) else NotImplemented


rlx.Shape.__eq__ = _same_sizes  # type: ignore[method-assign]
_everywhere = rlx.eager()
_everywhere.__enter__()
