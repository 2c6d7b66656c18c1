"""Errors, locks, files and texts: what needs neither MLIR nor tensors."""
