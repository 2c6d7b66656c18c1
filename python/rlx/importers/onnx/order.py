"""The order of nodes, and the names that they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import NodeProto


def names_read(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, including the names that its inner graphs read or return."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        if attribute.type == attribute.GRAPH:
            for inner in attribute.g.node:
                yield from names_read(inner)
            yield from (o.name for o in attribute.g.output)


def in_order(nodes: Sequence[Any], is_given: Callable[[str], bool]) -> Sequence[Any]:
    """Return nodes sorted so that each comes after its operands. ONNX requires this, but some exporters do not do it.

    Args:
        nodes: The nodes of a graph.
        is_given: Whether a name has a value before the first node.
    """
    made: set[str] = set()
    for node in nodes:
        if not all(not name or name in made or is_given(name) for name in node.input):
            return _sorted(nodes)
        made.update(node.output)
    return nodes


def _sorted(nodes: Sequence[Any]) -> list[Any]:
    """Return each node after its operands, otherwise in the original order. Nodes of a cycle keep their position."""
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    found: list[Any] = []
    seen: set[int] = set()
    for first in range(len(nodes)):
        waiting = [(first, False)]
        while waiting:
            i, is_ready = waiting.pop()
            if is_ready:
                found.append(nodes[i])
            elif i not in seen:
                seen.add(i)
                waiting.append((i, True))
                before = [maker[name] for name in names_read(nodes[i]) if name in maker]
                waiting.extend((j, False) for j in reversed(before))
    return found
