"""Models built from blocks, that load published weights."""
