"""Constraints of generated texts: JSON schemas and grammars, enforced with the package `llguidance`."""

from __future__ import annotations

from rlx.llm.grammar.constraint import GrammarConstraint
from rlx.llm.grammar.source import constraint_source

__all__ = ["GrammarConstraint", "constraint_source"]
