"""Ops: their records, cards, attributes and views."""
