"""Copying and pickling of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx.ir.graph.graph import Graph


class Copied:
    """Mixin for `copy` and `pickle`. A pickle contains the text of the graph and the parameter values that it carries."""

    def __copy__(self: Any) -> Graph:
        return self.clone()

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Graph:
        return self.clone()

    def __reduce__(self: Any) -> tuple[Any, ...]:
        return _restored, (self.text(locations=True), self.name_symbol, self.name, dict(self.weights))


def _restored(text: str, entry: str, name: str, weights: dict[str, Any]) -> Graph:
    from rlx.ir.graph.graph import Graph
    from rlx.ir.text.modules import parse_module

    graph = Graph.from_module(parse_module(text, "<pickle>"), entry)
    graph.name = name
    graph._weights |= weights  # pyright: ignore[reportPrivateUsage]
    return graph
