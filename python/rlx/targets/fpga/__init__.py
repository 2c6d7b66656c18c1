"""FPGAs: integer graphs as SystemVerilog, a streaming dataflow of layers that CIRCT writes and simulates."""
