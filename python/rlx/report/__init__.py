"""Reports on graphs and compilations, as text and drawings: fusions, memory plans, and the lowering of each op."""
