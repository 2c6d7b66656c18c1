"""The XLA back end: StableHLO, run on the CPU by jaxlib."""
