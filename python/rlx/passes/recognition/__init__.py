"""Recognition: higher-level ops from the primitives that importers produce."""
