"""Conversion of language models to GGUF files with packed weights."""
