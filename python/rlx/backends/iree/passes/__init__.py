"""What IREE wants more than linalg, and what it does not do right: passes over what `rlx-to-linalg` gives.

`rlx.backends.iree.pipeline` says in which order they run.
"""
