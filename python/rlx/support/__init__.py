"""Shared utilities that need neither MLIR nor tensors: errors, locks, files and text."""
