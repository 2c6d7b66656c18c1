"""`kernel_error`: the error for wrong code of a kernel."""

from __future__ import annotations

from rlx.support.caller import caller_place
from rlx.support.errors import ShapeError


def kernel_error(message: str, hint: str | None = None, place: str | None = None) -> ShapeError:
    """Return an error at a place, by default the user's line."""
    return ShapeError(message, location=place or caller_place(), hint=hint)
