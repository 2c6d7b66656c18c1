"""HIR blocks: ops that stand for a part of a model; importing this registers their cards."""

from __future__ import annotations

from rlx.blocks import image, linear, mtp, recurrent, sequence, transformer
from rlx.ops import surface

surface.install()

__all__ = ["image", "linear", "mtp", "recurrent", "sequence", "transformer"]
