"""What every test shares."""

from __future__ import annotations

from hypothesis import settings

# A first compilation, or the other tests on the machine, may hold up any single example.
settings.register_profile("rlx", deadline=None)
settings.load_profile("rlx")
