"""Reports on graphs and compilations: what fused, where values lie in memory, which way each op goes; as text and drawings."""
