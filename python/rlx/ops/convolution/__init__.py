"""Window ops on images: convolution, pooling, resizing."""
