"""Ensembles of decision trees of `ai.onnx.ml`. All trees are evaluated together, one level per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.onnx.ml_scores import KINDS, apply_post_transform, labels_of, reduce_targets, rows_of, two_columns
from rlx.importers.onnx.rules import all_within, element_count, imports
from rlx.importers.table import constant as literal_or_weight
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

_DOMAIN = "ai.onnx.ml"
_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
_METHODS = dict(zip(_MODES, ("le", "lt", "ge", "gt", "eq", "ne"), strict=True))
_MEMBER = 6
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True)
class _Forest:
    """Trees as tables indexed by node. A leaf is its own child.

    Attributes:
        features: The feature that a node tests.
        limits: The value that the feature is compared with.
        modes: The comparison, as an index into `_MODES`.
        missing: Whether a NaN takes the branch of a true comparison.
        yes: The child for a true comparison.
        no: The child for a false comparison.
        roots: The first node of each tree.

    Raises:
        ValueError: The tables have different lengths, or refer to a node that does not exist.
    """

    features: np.ndarray
    limits: np.ndarray
    modes: np.ndarray
    missing: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    roots: np.ndarray

    def __post_init__(self) -> None:
        tables = (self.features, self.limits, self.modes, self.missing, self.no)
        if any(table.shape != self.yes.shape for table in tables):
            raise ValueError("the attributes of nodes have different lengths")
        for nodes in (self.yes, self.no, self.roots):
            all_within(nodes, self.yes.size, "nodes")

    @property
    def depth(self) -> int:
        """Return the largest number of steps from a root to a leaf.

        Raises:
            UnsupportedError: An inner node has two parents, or is its own descendant.
        """
        numbers, level, seen = np.arange(self.yes.size), self.roots, np.zeros(self.yes.size, bool)
        for depth in range(self.yes.size + 1):
            inner = level[(self.yes[level] != numbers[level]) | (self.no[level] != numbers[level])]
            if not inner.size:
                return depth
            if seen[inner].any() or np.unique(inner).size != inner.size:
                break
            seen[inner] = True
            forks = inner[self.yes[inner] != self.no[inner]]
            level = np.concatenate([self.yes[inner], self.no[forks]])
        raise UnsupportedError("whose nodes are no trees cannot be imported")

    def leaves(self, g: Graph, x: Tensor) -> Tensor:
        """The leaf that each row of `x` comes to in each tree, `[rows, trees]`.

        Raises:
            ValueError: A node tests a feature that `x` does not have.
        """
        width = x.shape.dims[1]
        all_within(self.features, width if isinstance(width, int) else None, "features")
        tables = [literal_or_weight(g, t, trainable=False) for t in (self.features, self.yes, self.no)]
        limits = g.cast(literal_or_weight(g, self.limits, trainable=False), x.dtype)
        (features, yes, no), holds = tables, self._test(g)

        def step(node: Any, _: Any) -> Any:
            now = node[0]
            value = g.take_along_axis(x, g.gather(features, now), axis=1)
            goes = holds(value, g.gather(limits, now), now)
            return (g.where(goes, g.gather(yes, now), g.gather(no, now)),), ()

        start = g.broadcast_to(g.constant(self.roots), (x.shape.dims[0], self.roots.size))
        return g.scan(step, (start,), (g.iota((self.depth,), 0, "i32"),))[0][0]

    def _test(self, g: Graph) -> Any:
        """Return a function of values, limits and nodes that computes whether the comparisons hold."""
        inner = self.yes != self.no
        kinds = sorted(set(self.modes[inner].tolist())) or [0]
        codes = literal_or_weight(g, self.modes, trainable=False) if len(kinds) > 1 else None
        missing = literal_or_weight(g, self.missing, trainable=False) if self.missing[inner].any() else None

        def holds(value: Tensor, limit: Tensor, node: Tensor) -> Tensor:
            tests = [getattr(g, _METHODS[_MODES[k]])(value, limit) for k in kinds]
            found = tests[0]
            if codes is not None:
                code = g.gather(codes, node)
                for kind, test in zip(kinds[1:], tests[1:], strict=True):
                    found = g.where(g.eq(code, kind), test, found)
            if missing is None:
                return found
            return g.logical_or(found, g.logical_and(g.isnan(value), g.gather(missing, node)))

        return holds


def _numbers(values: Sequence[float] | None, tensor: np.ndarray | None) -> np.ndarray:
    """Return numbers from a list or a tensor."""
    return np.asarray(tensor) if tensor is not None else np.array(values or (), np.float32)


@dataclass(frozen=True, kw_only=True)
class NodeAttributes(ArgumentGroup):
    """The attributes of the nodes of trees as versions 1 to 3 write them, with ONNX's names."""

    nodes_falsenodeids: Sequence[int] | None = None
    nodes_featureids: Sequence[int] | None = None
    nodes_hitrates: Sequence[float] | None = None
    nodes_hitrates_as_tensor: np.ndarray | None = None
    nodes_missing_value_tracks_true: Sequence[int] | None = None
    nodes_modes: Sequence[str] | None = None
    nodes_nodeids: Sequence[int] | None = None
    nodes_treeids: Sequence[int] | None = None
    nodes_truenodeids: Sequence[int] | None = None
    nodes_values: Sequence[float] | None = None
    nodes_values_as_tensor: np.ndarray | None = None

    def forest(self) -> tuple[_Forest, dict[tuple[int, int], int]]:
        """The trees, and the place of each node by tree and number.

        Raises:
            UnsupportedError: An attribute that every tree has is left out.
        """
        trees, ids, modes = (_given(getattr(self, n), n) for n in ("nodes_treeids", "nodes_nodeids", "nodes_modes"))
        places = {key: i for i, key in reversed(list(enumerate(zip(trees, ids, strict=True))))}
        roots: dict[int, int] = {}
        for i, tree in enumerate(trees):
            roots.setdefault(tree, i)
        count, own = len(ids), np.arange(len(ids), dtype=np.int32)
        is_leaf = np.array([m == "LEAF" for m in modes])
        codes = np.array([0 if m == "LEAF" else _code(m) for m in modes], np.int32)
        yes, no = own.copy(), own.copy()
        ways = ((yes, self.nodes_truenodeids, "nodes_truenodeids"), (no, self.nodes_falsenodeids, "nodes_falsenodeids"))
        for table, following, name in ways:
            children = _given(following, name)
            for i in np.flatnonzero(~is_leaf).tolist():
                table[i] = places[trees[i], children[i]]
        features = np.array(_given(self.nodes_featureids, "nodes_featureids"), np.int32)
        features[is_leaf] = 0
        limits = _numbers(self.nodes_values, self.nodes_values_as_tensor)
        missing = np.array(self.nodes_missing_value_tracks_true or (0,) * count, bool)
        firsts = np.array(list(roots.values()), np.int32)
        return _Forest(features, limits, codes, missing, yes, no, firsts), places


def _given(values: Any, name: str) -> Any:
    """The value of an attribute.

    Raises:
        UnsupportedError: It is left out.
    """
    if values is None:
        raise UnsupportedError(f"without '{name}' cannot be imported")
    return values


def _code(mode: str) -> int:
    name = mode.removeprefix("BRANCH_")
    if name not in _MODES:
        raise UnsupportedError(f"with nodes of the kind '{mode}' cannot be imported")
    return _MODES.index(name)


def _weights(
    count: int, targets: int, nodes: Sequence[int] | np.ndarray, ids: Sequence[int], weights: np.ndarray, how: str
) -> np.ndarray:
    """Return the weights of each leaf for each target, `[nodes, targets]`.

    Raises:
        ValueError: A weight does not have a node and a target.
    """
    element_count(count * targets, "weights of leaves")
    start, add = {"MIN": (np.inf, np.minimum), "MAX": (-np.inf, np.maximum)}.get(how, (0.0, np.add))
    table = np.full((count, targets), start, weights.dtype)
    places = np.asarray(nodes, np.int64), np.asarray(ids, np.int64)
    if any(place.shape != weights.shape for place in places):
        raise ValueError("the attributes of leaves have different lengths")
    all_within(places[1], targets, "targets")
    add.at(table, places, weights)
    return table


def _with_base(g: Graph, result: Tensor, base: np.ndarray, targets: int) -> Tensor:
    """Return the result of the trees plus the base value of each target.

    Raises:
        ValueError: The number of base values differs from the number of targets.
    """
    if base.size not in (0, targets):
        raise ValueError(f"{base.size} base values for {targets} targets")
    return g.add(result, g.constant(base.astype(result.dtype.numpy))) if base.size else result


def _aggregated(g: Graph, x: Tensor, forest: _Forest, table: np.ndarray, how: str) -> Tensor:
    """Return the aggregated weights of the reached leaves, `[rows, targets]`; 0 if no leaf has a weight for a target."""
    if how not in _AGGREGATES:
        raise UnsupportedError(f"with '{how}' of its leaves cannot be imported")
    found = g.gather(literal_or_weight(g, table, trainable=False), forest.leaves(g, x))
    if how in ("MIN", "MAX"):
        extreme = g.reduce(how.lower(), found, (1,))
        return g.where(g.isfinite(extreme), extreme, 0.0)
    total = g.sum(found, (1,))
    return g.div(total, float(forest.roots.size)) if how == "AVERAGE" else total


@dataclass(frozen=True, kw_only=True)
class EnsembleAttributes(ArgumentGroup):
    """The base values and the final function of an ensemble, with ONNX's names."""

    base_values: Sequence[float] | None = None
    base_values_as_tensor: np.ndarray | None = None
    post_transform: str = "NONE"

    @property
    def base(self) -> np.ndarray:
        """The base value of each target."""
        return _numbers(self.base_values, self.base_values_as_tensor)


@dataclass(frozen=True, kw_only=True)
class TargetAttributes(ArgumentGroup):
    """The attributes of the leaves of a regressor, with ONNX's names."""

    n_targets: int
    target_ids: Sequence[int]
    target_nodeids: Sequence[int]
    target_treeids: Sequence[int]
    target_weights: Sequence[float] | None = None
    target_weights_as_tensor: np.ndarray | None = None


@imports(f"{_DOMAIN}.TreeEnsembleRegressor")
def tree_ensemble_regressor(
    g: Graph,
    x: Tensor,
    *,
    nodes: NodeAttributes,
    leaves: TargetAttributes,
    ensemble: EnsembleAttributes,
    aggregate_function: str = "SUM",
) -> Tensor:
    x, (forest, places), targets = rows_of(g, x), nodes.forest(), leaves.n_targets
    weights = _numbers(leaves.target_weights, leaves.target_weights_as_tensor)
    ids = [places[key] for key in zip(leaves.target_treeids, leaves.target_nodeids, strict=True)]
    table = _weights(forest.yes.size, targets, ids, leaves.target_ids, weights, aggregate_function)
    result = _aggregated(g, x, forest, table, aggregate_function)
    result = _with_base(g, result, ensemble.base, targets)
    return g.cast(reduce_targets(g, result, ensemble.post_transform), "f32")


@dataclass(frozen=True, kw_only=True)
class ClassAttributes(ArgumentGroup):
    """The attributes of the leaves of a classifier, and of its classes, with ONNX's names."""

    class_ids: Sequence[int]
    class_nodeids: Sequence[int]
    class_treeids: Sequence[int]
    class_weights: Sequence[float] | None = None
    class_weights_as_tensor: np.ndarray | None = None
    classlabels_int64s: Sequence[int] | None = None
    classlabels_strings: Sequence[str] | None = None


@imports(f"{_DOMAIN}.TreeEnsembleClassifier")
def tree_ensemble_classifier(
    g: Graph,
    x: Tensor,
    *,
    wanted: Sequence[bool],
    nodes: NodeAttributes,
    leaves: ClassAttributes,
    ensemble: EnsembleAttributes,
) -> tuple[Tensor, Tensor]:
    x, (forest, places), class_ids = rows_of(g, x), nodes.forest(), leaves.class_ids
    weights = _numbers(leaves.class_weights, leaves.class_weights_as_tensor)
    base, kind, labels = ensemble.base, ensemble.post_transform, (leaves.classlabels_int64s, leaves.classlabels_strings)
    count = len(labels[0] or labels[1] or ())
    ids = [places[key] for key in zip(leaves.class_treeids, leaves.class_nodeids, strict=True)]
    if count == 2 and set(class_ids) == {0} and base.size < 2:  # the score of the second class alone
        table = _weights(forest.yes.size, 1, ids, class_ids, weights, "SUM")
        score = _aggregated(g, x, forest, table, "SUM")
        score = g.cast(g.add(score, float(base[0])) if base.size else score, "f32")
        is_share = not (weights < 0).any()
        second = g.squeeze(g.gt(score, 0.5 if is_share else 0.0), 1)
        return labels_of(g, g.cast(second, "i32"), *labels, wanted), two_columns(g, score, kind, is_share)
    if count < 3 and (count < 2 or len(set(class_ids)) < 2 or base.size == 2):
        raise UnsupportedError(f"of {count} classes, by such scores, cannot be imported")
    table = _weights(forest.yes.size, count, ids, class_ids, weights, "SUM")
    scores = g.cast(_with_base(g, _aggregated(g, x, forest, table, "SUM"), base, count), "f32")
    # With two classes, ONNX Runtime chooses the second one if its score is positive.
    best = g.cast(g.gt(scores[:, 1], 0.0), "i32") if count == 2 else g.argmax(scores, 1)
    return labels_of(g, best, *labels, wanted), apply_post_transform(g, scores, kind)


@dataclass(frozen=True, kw_only=True)
class LeafAttributes(ArgumentGroup):
    """The attributes of leaves as version 5 writes them, with ONNX's names."""

    leaf_targetids: Sequence[int]
    leaf_weights: np.ndarray
    n_targets: int = 1


@dataclass(frozen=True, kw_only=True)
class ForestAttributes(ArgumentGroup):
    """The attributes of inner nodes as version 5 writes them, with ONNX's names."""

    nodes_falseleafs: Sequence[int]
    nodes_falsenodeids: Sequence[int]
    nodes_featureids: Sequence[int]
    nodes_modes: np.ndarray
    nodes_splits: np.ndarray
    nodes_trueleafs: Sequence[int]
    nodes_truenodeids: Sequence[int]
    tree_roots: Sequence[int]
    membership_values: np.ndarray | None = None
    nodes_hitrates: np.ndarray | None = None
    nodes_missing_value_tracks_true: Sequence[int] | None = None

    def forest(self, leaves: int) -> _Forest:
        """The trees. Inner nodes come first in the tables, then the leaves."""
        count = len(self.nodes_featureids)
        own, behind = np.arange(count, count + leaves), ((0, leaves),)
        ways = ((self.nodes_trueleafs, self.nodes_truenodeids), (self.nodes_falseleafs, self.nodes_falsenodeids))
        yes, no = (
            np.concatenate([np.where(is_leaf, count + np.array(ids), ids), own]).astype(np.int32)
            for is_leaf, ids in ways
        )
        missing = np.array(self.nodes_missing_value_tracks_true or (0,) * count, bool)
        forest = _Forest(
            np.pad(np.array(self.nodes_featureids, np.int32), behind),
            np.pad(self.nodes_splits, behind),
            np.pad(np.asarray(self.nodes_modes, np.int32), behind),
            np.pad(missing, behind),
            yes,
            no,
            np.array(self.tree_roots, np.int32),
        )
        return _with_members(forest, self.membership_values)


@imports(f"{_DOMAIN}.TreeEnsemble")
def tree_ensemble(
    g: Graph,
    x: Tensor,
    *,
    nodes: ForestAttributes,
    leaves: LeafAttributes,
    aggregate_function: int = 1,
    post_transform: int = 0,
) -> Tensor:
    inner, count = len(nodes.nodes_featureids), len(leaves.leaf_targetids)
    forest, own = nodes.forest(count), np.arange(inner, inner + count)
    how, kind = dict(enumerate(_AGGREGATES))[aggregate_function], dict(enumerate(KINDS))[post_transform]
    table = _weights(forest.yes.size, leaves.n_targets, own, leaves.leaf_targetids, leaves.leaf_weights, how)
    return g.cast(apply_post_transform(g, _aggregated(g, x, forest, table, how), kind), x.dtype)


def _with_members(forest: _Forest, members: np.ndarray | None) -> _Forest:
    """Replace each node that tests set membership by a chain of nodes that each test equality with one value."""
    places = np.flatnonzero(forest.modes == _MEMBER).tolist()
    if not places:
        return forest
    values: list[list[float]] = [[]]
    for value in np.asarray(members).tolist():
        if value == value:
            values[-1].append(value)
        else:  # a NaN ends the values of a node
            values.append([])
    size = forest.yes.size
    more: dict[str, list[Any]] = {n: [] for n in ("features", "limits", "modes", "missing", "yes", "no")}
    first = {n: getattr(forest, n).copy() for n in more}
    for place, group in zip(places, values, strict=False):
        first["modes"][place], first["limits"][place] = _MODES.index("EQ"), group[0] if group else np.nan
        last = first["no"][place]
        for i, value in enumerate(group[1:]):
            number = size + len(more["yes"])
            if i == 0:
                first["no"][place] = number
            link = (forest.features[place], value, _MODES.index("EQ"), False, forest.yes[place])
            for name, item in zip(more, (*link, last if i == len(group) - 2 else number + 1), strict=True):
                more[name].append(item)
    joined = {n: np.concatenate([a, np.array(more[n], a.dtype)]) for n, a in first.items()}
    return _Forest(**joined, roots=forest.roots)
