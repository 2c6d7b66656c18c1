"""Modules as text and bytecode."""
