"""Fuzzers: many damaged inputs. RLX may refuse an input with an `rlx.Error`, and must not fail in any other way.

    python -m tools.fuzz texts --count=10000 --seed=1        # run
    python -m tools.fuzz texts --seed=1 --first=4711 --count=1   # one input again

A kind of input is one file in `tools/fuzz/kinds/`. `frame.py` defines its interface and runs it.
"""
