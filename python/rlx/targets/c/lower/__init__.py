"""rlx to C99: for microcontrollers, and for any other machine with a compiler. Each file registers its rules."""

from __future__ import annotations

from rlx.support.submodules import import_all

import_all(__name__)
