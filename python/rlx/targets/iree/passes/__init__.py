"""Passes on the result of `rlx-to-linalg`: they add the ops that IREE needs, and work around its defects.

`rlx.targets.iree.pipeline` has their order.
"""
