"""Matrix factorisations and functions computed from them."""
