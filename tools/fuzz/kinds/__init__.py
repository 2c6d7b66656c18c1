"""The kinds of input, one in each file: a module with an instance of `tools.fuzz.frame.Kind` called `KIND`."""
