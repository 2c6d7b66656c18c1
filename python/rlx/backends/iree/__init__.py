"""The lower half of the IREE back end: MLIR that is legal for IREE goes in, NumPy arrays come out.

``targets`` says what to compile for and with which flags; ``compiler`` turns MLIR text into a compiled
module, in the processes of ``process`` and ``worker``; ``executable`` loads it on one of the ``devices`` and
calls its functions. Importing any of these modules imports neither IREE's compiler nor its runtime.
"""
