"""Ops with regions, and ops that users register."""
