"""TPUs: StableHLO, compiled ahead of time by libtpu on a machine without a TPU."""
