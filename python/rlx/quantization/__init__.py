"""Quantisation of whole graphs: calibration, schemes, and the loss of accuracy of each layer."""
