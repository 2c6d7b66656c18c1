"""Fused ops: names for what fusion passes find."""
