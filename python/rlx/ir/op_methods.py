"""The op methods of `Builder`: installed from the cards at run time, declared in the generated stub beside this file."""

from __future__ import annotations


class OpMethods:
    """Holds nothing itself; see `rlx.ops.surface.install`."""
