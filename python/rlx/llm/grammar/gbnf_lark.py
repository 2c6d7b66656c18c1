"""Conversion of GBNF to the variant of Lark that `llguidance` reads.

In Lark, a lexer divides a text into terminals first, and each takes the longest text. GBNF has no lexer. So a grammar
without recursion becomes one terminal, which is a regular expression. In another one, each character is a terminal. Both
accept exactly the texts of the GBNF.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlx.llm.grammar.finite_parts import FiniteParts
from rlx.llm.grammar.gbnf import (
    GbnfCharacters,
    GbnfChoice,
    GbnfNode,
    GbnfReference,
    GbnfRepetition,
    GbnfSequence,
    children,
    parsed_gbnf,
    references,
)
from rlx.support.errors import Error
from rlx.support.short import short_repr


def lark_of_gbnf(text: str) -> str:
    """Return a grammar in Lark that accepts the same texts.

    Raises:
        Error: The text is not valid GBNF, or no text is complete, because a rule always contains itself.
        UnsupportedError: The grammar names tokens.
    """
    rules = parsed_gbnf(text)
    uses = {name: references(rule) for name, rule in rules.items()}
    used = _reached("root", uses)
    _check_complete(used, rules)
    is_regular = _is_acyclic({name: uses[name] for name in used})
    names = {name: f"{'R' if is_regular else 'r'}{number}" for number, name in enumerate(used)}
    lines = [f"{names[name]}: {_expression(rules[name], names, is_regular)}" for name in used]
    return "\n".join([f"start: {names['root']}", *lines, ""])


def _reached(start: str, uses: Mapping[str, set[str]]) -> list[str]:
    """Return a rule and the ones that it uses, directly or not."""
    found: dict[str, None] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = None
            waiting += sorted(uses[name])
    return list(found)


def _is_acyclic(uses: Mapping[str, set[str]]) -> bool:
    """Whether no rule uses itself, directly or not: rules can be removed one by one, each after those that it uses."""
    left = {name: len(others) for name, others in uses.items()}
    users: dict[str, list[str]] = {name: [] for name in uses}
    for name, others in uses.items():
        for other in others:
            users[other].append(name)
    waiting, removed = [name for name, count in left.items() if not count], 0
    while waiting:
        removed += 1
        for user in users[waiting.pop()]:
            left[user] -= 1
            if not left[user]:
                waiting.append(user)
    return removed == len(uses)


def _check_complete(used: list[str], rules: Mapping[str, GbnfNode]) -> None:
    """Check that there is a text of finite length."""
    parts = FiniteParts()
    numbers = {name: parts.new() for name in used}

    def number(node: GbnfNode) -> int:
        if isinstance(node, GbnfReference):
            return numbers[node.name]
        result = parts.new()
        if isinstance(node, GbnfChoice):
            parts.use_one(result, map(number, node.alternatives))
        elif not (isinstance(node, GbnfRepetition) and node.least == 0):
            for part in children(node):
                parts.use(result, number(part))
        return result

    for name in used:
        parts.use(numbers[name], number(rules[name]))
    parts.solve()
    if not parts.is_finite(numbers["root"]):
        name = next(name for name in used if not parts.is_finite(numbers[name]))
        raise Error(f"rule {short_repr(name)} of the grammar has no complete text, because it always contains itself")


def _expression(node: GbnfNode, names: Mapping[str, str], is_regular: bool) -> str:
    match node:
        case GbnfCharacters():
            return f"/{_characters(node)}/"
        case GbnfReference(name):
            return names[name]
        case GbnfSequence(items) if is_regular and items and all(isinstance(i, GbnfCharacters) for i in items):
            return f"/{''.join(_characters(item) for item in items if isinstance(item, GbnfCharacters))}/"
        case GbnfSequence(items):
            return f"({' '.join(_expression(item, names, is_regular) for item in items)})" if items else '""'
        case GbnfChoice(alternatives):
            return f"({' | '.join(_expression(item, names, is_regular) for item in alternatives)})"
        case GbnfRepetition(item, least, most):
            return f"({_expression(item, names, is_regular)}){{{least},{'' if most is None else most}}}"


def _characters(node: GbnfCharacters) -> str:
    """Return a regular expression for one character."""
    if not node.ranges:
        return "(?s:.)"
    ranges = "".join(f"\\x{{{low:x}}}" + (f"-\\x{{{high:x}}}" if high > low else "") for low, high in node.ranges)
    is_one = not node.is_negated and len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]
    return ranges if is_one else f"[{'^' if node.is_negated else ''}{ranges}]"
