"""Reports on graphs and compilations, as text and drawings: fusions, places of values in memory, how each op is lowered."""
