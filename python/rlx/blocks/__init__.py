"""HIR blocks: ops that stand for a part of a model; importing this registers their cards."""

from __future__ import annotations

# The package to the left first, and whole: see passes/__init__.py.
import rlx.ops  # noqa: F401
from rlx.blocks import image, linear, mtp, recurrent, sequence, transformer
from rlx.ops import surface

surface.install()

__all__ = ["image", "linear", "mtp", "recurrent", "sequence", "transformer"]
