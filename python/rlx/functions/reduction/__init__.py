"""Statistics, searching, and reductions without NaN."""
