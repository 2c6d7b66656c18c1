"""The kinds of input, one per file: a module with an instance of `tools.fuzz.frame.Kind` named `KIND`."""
