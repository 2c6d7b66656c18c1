"""AXI4-Stream and AXI4-Lite around a design."""
