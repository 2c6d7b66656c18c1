"""What every test shares."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from hypothesis import settings

# Compiled programs are kept in the tree's own build folder, not in the user's cache; a second run is quicker.
os.environ.setdefault("RLX_CACHE_DIR", str(Path(__file__).resolve().parents[1] / "build" / "test-cache"))

# A shell has its background jobs ignore interrupts, and whatever they start: the commands under test are to heed them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A first compilation, or the other tests on the machine, may hold up any single example.
settings.register_profile("rlx", deadline=None)
settings.load_profile("rlx")
