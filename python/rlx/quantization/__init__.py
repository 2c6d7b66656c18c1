"""Quantisation of whole graphs: calibration, schemes, and what each layer costs in accuracy."""
