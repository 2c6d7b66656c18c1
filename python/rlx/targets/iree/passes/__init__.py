"""Passes over the result of `rlx-to-linalg`: for what IREE needs in addition to linalg, and for what it does wrong.

`rlx.targets.iree.pipeline` has their order.
"""
