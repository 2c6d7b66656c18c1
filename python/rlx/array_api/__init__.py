"""The array API standard on RLX tensors.

`x.__array_namespace__()` returns this module, so code that is written for the standard builds graphs. Inside
`with rlx.eager():` the same functions compute immediately.

Tensors are values: functions of the standard that write to an array are missing, and so are those listed in
`docs/array-api.md`.
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
