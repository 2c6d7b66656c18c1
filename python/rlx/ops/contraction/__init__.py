"""Matrix products and linear systems."""
