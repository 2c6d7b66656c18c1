"""HIR blocks: ops that represent a part of a model. Importing this package registers their cards."""

from __future__ import annotations

# The package to the left in the import order must be imported first and completely: see passes/__init__.py.
import rlx.ops  # noqa: F401
from rlx.ops import surface
from rlx.support.submodules import import_all

import_all(__name__)
surface.install()
