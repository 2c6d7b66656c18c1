"""Quantisation, and computing with quantised numbers."""
