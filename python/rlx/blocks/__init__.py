"""HIR blocks: ops that stand for a part of a model; importing this registers their cards."""

from __future__ import annotations

# The package to the left first, and whole: see passes/__init__.py.
import rlx.ops  # noqa: F401
from rlx.ops import surface
from rlx.support.submodules import import_all

import_all(__name__)
surface.install()
