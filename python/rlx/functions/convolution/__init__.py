"""Functions of images: pooling, interpolation, sampling, blocks."""
