"""TPUs: StableHLO, compiled ahead of time by libtpu, with no TPU here."""
