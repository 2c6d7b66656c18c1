"""Programs in C: files for microcontrollers, and the same code compiled for this machine."""
