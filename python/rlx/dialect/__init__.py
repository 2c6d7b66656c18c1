"""The rlx dialect as data: generated from `dialect/*.td` (see `spec.py`)."""
