"""The IREE back end: compiles modules with IREE's compiler, and runs them with IREE's runtime.

``targets`` has the devices and the flags for them; ``compiler`` turns MLIR text into a compiled module, in the
processes of ``process`` and ``worker``; ``executable`` loads it on one of the ``devices`` and calls its functions.
Importing any of these modules imports neither IREE's compiler nor its runtime.
"""
