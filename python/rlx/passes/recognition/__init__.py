"""Recognition: names for what primitives spell out, as importers bring it."""
