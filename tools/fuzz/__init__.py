"""Fuzzers: many damaged inputs, each of which may be refused with an `rlx.Error` and must do nothing worse.

    python -m tools.fuzz texts --count=10000 --seed=1        # run
    python -m tools.fuzz texts --seed=1 --first=4711 --count=1   # one input again

A kind of input is one file in `tools/fuzz/kinds/`; `frame.py` says what is in it and what the frame does.
"""
