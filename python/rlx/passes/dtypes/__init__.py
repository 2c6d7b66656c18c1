"""The dtypes to compute in: precision and quantisation."""
