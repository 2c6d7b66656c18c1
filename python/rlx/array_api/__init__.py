"""The array API standard on RLX's tensors: what `x.__array_namespace__()` gives, so that code written for it builds graphs.

Inside of `with rlx.eager():` the same functions compute at once. Tensors are values: what the standard writes into an array is
not there, and neither is what `docs/array-api.md` lists.
"""

from __future__ import annotations

import numpy as _np

from rlx.array_api import fft as fft
from rlx.array_api import linalg as linalg
from rlx.array_api.creation import *  # noqa: F403
from rlx.array_api.dtypes import *  # noqa: F403
from rlx.array_api.elementwise import *  # noqa: F403
from rlx.array_api.linear import *  # noqa: F403
from rlx.array_api.manipulation import *  # noqa: F403
from rlx.array_api.reductions import *  # noqa: F403
from rlx.array_api.searching import *  # noqa: F403

__array_api_version__ = "2025.12"
e, inf, nan, newaxis, pi = _np.e, _np.inf, _np.nan, None, _np.pi
