"""Windows over images: convolutions, pooling, resizing."""
