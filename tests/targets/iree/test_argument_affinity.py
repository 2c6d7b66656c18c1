"""`rlx-iree-argument-affinity`: loops do not copy their carries."""

from __future__ import annotations

from tests.targets.iree.loop_copies import copies_in_loop


def test_a_loop_copies_no_carry() -> None:
    assert copies_in_loop(None) == 0
