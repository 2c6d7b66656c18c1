"""Gradients as ops: names for what the rules of forward ops give."""
