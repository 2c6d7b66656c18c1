"""Transforms: derivatives and batching, graph in, graph out. Each is a pass as well.

The engines are `forward`, `reverse` and `batching`; every other file is one transform, named as its pass is.
"""
