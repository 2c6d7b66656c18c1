"""The graphs of a model that generates text: prompts, single tokens, rows of several texts, and copies in its cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument
from rlx.ir.op import opview, views
from rlx.llm.cache import is_cache_state
from rlx.models.model import PretrainedModel
from rlx.schemes.registry import WITHOUT_KERNELS

_SYMBOL = "sequence"
_ALIKE = frozenset(("matmul_transposed", "cached_attention"))


def generation_graphs(
    model: PretrainedModel, sizes: Mapping[str, Any], rows: int, *, is_consecutive: bool, predicts: bool
) -> dict[str, Graph]:
    """Return the graphs by the names of their entry points.

    `prefill` has the tokens of a prompt, `decode` one token, and `batch` a token for each row. `decode` is left out if its
    numbers would differ from those of `batch`. `predict` is the head that predicts further tokens. `copy_page`, `write_page`
    and `write_slot` change the states.

    Args:
        model: The model.
        sizes: The options of its graphs, with `context`.
        rows: The rows of `batch`; it is left out if this is 1.
        is_consecutive: Whether the rows are consecutive tokens of one text.
        predicts: Whether there is `predict`, for which the others return hidden states.
    """
    whole = {"hidden": True} if predicts else {}
    graphs = {"prefill": model.graph(sequence=_SYMBOL, **sizes, **whole)}
    decode = model.graph(sequence=1, **sizes, **whole)
    if rows == 1 or _has_equal_rows(decode):
        graphs["decode"] = decode
    if rows > 1:
        own = whole | ({"consecutive": True} if is_consecutive else {})
        graphs["batch"] = model.graph(sequence=1, batch=rows, **sizes, **own)
    if predicts:
        graphs["predict"] = model.prediction_graph(sequence=_SYMBOL, **(dict(sizes) | {"slots": 0}))
    states = {a.name: a for graph in graphs.values() for a in graph.arguments if a.kind == "state"}
    caches = [state for state in states.values() if is_cache_state(state.name)]
    if "pages" in sizes:
        graphs |= {"copy_page": _copy_of_page(caches), "write_page": _write("write_page", caches)}
    if "slots" in sizes:
        others = [state for state in states.values() if not is_cache_state(state.name)]
        graphs["write_slot"] = _write("write_slot", others)
    return graphs


def whole_graph(model: PretrainedModel, **sizes: Any) -> Graph:
    """Return a graph without a cache, for the tokens of whole texts."""
    return model.graph(sequence=_SYMBOL, **sizes)


def _has_equal_rows(decode: Graph) -> bool:
    """Whether a row of a run with several rows has the bits of the program for one.

    Some kernels of products compute each row alike, whatever their number. Other products depend on it.
    """

    def is_alike(op: mlir.Operation) -> bool:
        if op.name == "rlx.dequant_matmul":
            return views.DequantMatmul(op).scheme.lower() not in WITHOUT_KERNELS
        return opview.name_of(op) in _ALIKE

    return all(is_alike(op) for op in opview.operations(decode.function.entry_block) if opview.has_trait(op, "product"))


def _copy_of_page(caches: Sequence[Argument]) -> Graph:
    """Return a graph that copies page `source` of each cache to page `target`."""
    g: Any = Graph("copy_page")
    source, target = g.input("source", (1,), "i32"), g.input("target", (1,), "i32")
    for cache in caches:
        state = g.state(cache.name, cache.shape.dims, cache.shape.dtype)
        page = g.gather(state, source, axis=0)
        g.update(state, g.update_cache(state, page, g.constant([0], dtype="i32"), target))
    g.set_outputs({"copied": target + 0})
    return g


def _write(name: str, states: Iterable[Argument]) -> Graph:
    """Return a graph that replaces page or slot `target` of each state by the input of its name."""
    g: Any = Graph(name)
    target = g.input("target", (1,), "i32")
    for state in states:
        own = g.state(state.name, state.shape.dims, state.shape.dtype)
        content = g.input(f"new_{state.name}", (1, *state.shape.dims[1:]), state.shape.dtype)
        g.update(own, g.update_cache(own, content, g.constant([0], dtype="i32"), target))
    g.set_outputs({"written": target + 0})
    return g
