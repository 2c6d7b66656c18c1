"""Ensembles of decision trees of `ai.onnx.ml`. All trees are evaluated together, one level per step."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.onnx.ml_scores import KINDS, labels_of, regressed, rows_of, transformed, two_columns
from rlx.importers.onnx.rules import all_within, bounded, described, imports, keywords_of
from rlx.importers.table import constant as literal_or_weight
from rlx.ir.graph.builder import Tensor
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

    def leaves(self, g: Any, x: Tensor) -> Tensor:
        """Return the leaf that each row of `x` reaches in each tree, `[rows, trees]`.

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

    def _test(self, g: Any) -> Any:
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


def _numbers(values: Any, tensor: Any) -> np.ndarray:
    """Return numbers from a list or a tensor."""
    return np.asarray(tensor) if tensor is not None else np.array(values or (), np.float32)


def _by_nodes(attributes: dict[str, Any]) -> tuple[_Forest, dict[tuple[int, int], int]]:
    """Return the trees in the format of versions 1 to 3, and the index of each node by tree and node number."""
    trees, ids, modes = (attributes[f"nodes_{n}"] for n in ("treeids", "nodeids", "modes"))
    places = {key: i for i, key in reversed(list(enumerate(zip(trees, ids, strict=True))))}
    roots: dict[int, int] = {}
    for i, tree in enumerate(trees):
        roots.setdefault(tree, i)
    count, own = len(ids), np.arange(len(ids), dtype=np.int32)
    is_leaf = np.array([m == "LEAF" for m in modes])
    codes = np.array([0 if m == "LEAF" else _code(m) for m in modes], np.int32)
    yes, no = own.copy(), own.copy()
    for i in np.flatnonzero(~is_leaf).tolist():
        yes[i] = places[trees[i], attributes["nodes_truenodeids"][i]]
        no[i] = places[trees[i], attributes["nodes_falsenodeids"][i]]
    features = np.array(attributes["nodes_featureids"], np.int32)
    features[is_leaf] = 0
    limits = _numbers(attributes.get("nodes_values"), attributes.get("nodes_values_as_tensor"))
    missing = np.array(attributes.get("nodes_missing_value_tracks_true") or (0,) * count, bool)
    firsts = np.array(list(roots.values()), np.int32)
    return _Forest(features, limits, codes, missing, yes, no, firsts), places


def _code(mode: str) -> int:
    name = mode.removeprefix("BRANCH_")
    if name not in _MODES:
        raise UnsupportedError(f"with nodes of the kind '{mode}' cannot be imported")
    return _MODES.index(name)


def _weights(count: int, targets: int, nodes: Any, ids: Any, weights: np.ndarray, how: str) -> np.ndarray:
    """Return the weight of each leaf for each target, `[nodes, targets]`.

    Raises:
        ValueError: A weight does not have a node and a target.
    """
    bounded(count * targets, "weights of leaves")
    start, add = {"MIN": (np.inf, np.minimum), "MAX": (-np.inf, np.maximum)}.get(how, (0.0, np.add))
    table = np.full((count, targets), start, weights.dtype)
    places = np.asarray(nodes, np.int64), np.asarray(ids, np.int64)
    if any(place.shape != weights.shape for place in places):
        raise ValueError("the attributes of leaves have different lengths")
    all_within(places[1], targets, "targets")
    add.at(table, places, weights)
    return table


def _with_base(g: Any, result: Tensor, base: np.ndarray, targets: int) -> Tensor:
    """Add the base value of each target to the result of the trees.

    Raises:
        ValueError: The number of base values differs from the number of targets.
    """
    if base.size not in (0, targets):
        raise ValueError(f"{base.size} base values for {targets} targets")
    return g.add(result, g.constant(base.astype(result.dtype.numpy))) if base.size else result


def _aggregated(g: Any, x: Tensor, forest: _Forest, table: np.ndarray, how: str) -> Tensor:
    """Return the aggregated weights of the reached leaves, `[rows, targets]`; 0 if no leaf has a weight for a target."""
    if how not in _AGGREGATES:
        raise UnsupportedError(f"with '{how}' of its leaves cannot be imported")
    found = g.gather(literal_or_weight(g, table, trainable=False), forest.leaves(g, x))
    if how in ("MIN", "MAX"):
        extreme = g.reduce(how.lower(), found, (1,))
        return g.where(g.isfinite(extreme), extreme, 0.0)
    total = g.sum(found, (1,))
    return g.div(total, float(forest.roots.size)) if how == "AVERAGE" else total


def trees(*ops: str) -> Any:
    """Register the rule of an op whose nodes are attributes. The rule gets these attributes together, as `nodes`."""
    names = ("falsenodeids", "featureids", "hitrates", "hitrates_as_tensor", "missing_value_tracks_true", "modes")
    names += ("nodeids", "treeids", "truenodeids", "values", "values_as_tensor")

    def register(build: Any) -> Any:
        def rule(g: Any, x: Tensor, **attributes: Any) -> Any:
            nodes = {n: attributes.pop(n) for n in list(attributes) if n.startswith("nodes_")}
            return build(g, rows_of(g, x), nodes=nodes, **attributes)

        given = [inspect.Parameter(f"nodes_{n}", inspect.Parameter.KEYWORD_ONLY, default=None) for n in names]
        own = [p for p in keywords_of(build) if p.name != "nodes"]
        imports(*ops)(described(rule, build, [*given, *own]))
        return build

    return register


@trees(f"{_DOMAIN}.TreeEnsembleRegressor")
def tree_ensemble_regressor(
    g: Any,
    x: Tensor,
    *,
    nodes: dict[str, Any],
    n_targets: int,
    target_ids: Any,
    target_nodeids: Any,
    target_treeids: Any,
    target_weights: Any = None,
    target_weights_as_tensor: Any = None,
    aggregate_function: str = "SUM",
    base_values: Any = None,
    base_values_as_tensor: Any = None,
    post_transform: str = "NONE",
) -> Tensor:
    forest, places = _by_nodes(nodes)
    weights = _numbers(target_weights, target_weights_as_tensor)
    ids = [places[key] for key in zip(target_treeids, target_nodeids, strict=True)]
    table = _weights(forest.yes.size, n_targets, ids, target_ids, weights, aggregate_function)
    result = _aggregated(g, x, forest, table, aggregate_function)
    result = _with_base(g, result, _numbers(base_values, base_values_as_tensor), n_targets)
    return g.cast(regressed(g, result, post_transform), "f32")


@trees(f"{_DOMAIN}.TreeEnsembleClassifier")
def tree_ensemble_classifier(
    g: Any,
    x: Tensor,
    *,
    nodes: dict[str, Any],
    wanted: Sequence[bool],
    class_ids: Any,
    class_nodeids: Any,
    class_treeids: Any,
    class_weights: Any = None,
    class_weights_as_tensor: Any = None,
    classlabels_int64s: Any = None,
    classlabels_strings: Any = None,
    base_values: Any = None,
    base_values_as_tensor: Any = None,
    post_transform: str = "NONE",
) -> tuple[Tensor, Tensor]:
    forest, places = _by_nodes(nodes)
    weights = _numbers(class_weights, class_weights_as_tensor)
    base = _numbers(base_values, base_values_as_tensor)
    count, labels = len(classlabels_int64s or classlabels_strings or ()), (classlabels_int64s, classlabels_strings)
    ids = [places[key] for key in zip(class_treeids, class_nodeids, strict=True)]
    if count == 2 and set(class_ids) == {0} and base.size < 2:  # there is only the score of the second class
        table = _weights(forest.yes.size, 1, ids, class_ids, weights, "SUM")
        score = _aggregated(g, x, forest, table, "SUM")
        score = g.cast(g.add(score, float(base[0])) if base.size else score, "f32")
        is_share = not (weights < 0).any()
        second = g.squeeze(g.gt(score, 0.5 if is_share else 0.0), 1)
        return labels_of(g, g.cast(second, "i32"), *labels, wanted), two_columns(g, score, post_transform, is_share)
    if count < 3 and (count < 2 or len(set(class_ids)) < 2 or base.size == 2):
        raise UnsupportedError(f"of {count} classes, by such scores, cannot be imported")
    table = _weights(forest.yes.size, count, ids, class_ids, weights, "SUM")
    scores = g.cast(_with_base(g, _aggregated(g, x, forest, table, "SUM"), base, count), "f32")
    # With two classes, ONNX Runtime chooses the second one if its score is positive.
    best = g.cast(g.gt(scores[:, 1], 0.0), "i32") if count == 2 else g.argmax(scores, 1)
    return labels_of(g, best, *labels, wanted), transformed(g, scores, post_transform)


@imports(f"{_DOMAIN}.TreeEnsemble")
def tree_ensemble(
    g: Any,
    x: Tensor,
    *,
    leaf_targetids: Any,
    leaf_weights: np.ndarray,
    nodes_falseleafs: Any,
    nodes_falsenodeids: Any,
    nodes_featureids: Any,
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: Any,
    nodes_truenodeids: Any,
    tree_roots: Any,
    aggregate_function: int = 1,
    membership_values: np.ndarray | None = None,
    n_targets: int = 1,
    nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Any = None,
    post_transform: int = 0,
) -> Tensor:
    """Evaluate a tree ensemble whose tables list the inner nodes first, then the leaves."""
    count, leaves = len(nodes_featureids), len(leaf_targetids)
    own = np.arange(count, count + leaves)
    yes, no = (
        np.concatenate([np.where(is_leaf, count + np.array(ids), ids), own]).astype(np.int32)
        for is_leaf, ids in ((nodes_trueleafs, nodes_truenodeids), (nodes_falseleafs, nodes_falsenodeids))
    )
    missing = np.array(nodes_missing_value_tracks_true or (0,) * count, bool)
    behind = ((0, leaves),)
    forest = _Forest(
        np.pad(np.array(nodes_featureids, np.int32), behind),
        np.pad(nodes_splits, behind),
        np.pad(np.asarray(nodes_modes, np.int32), behind),
        np.pad(missing, behind),
        yes,
        no,
        np.array(tree_roots, np.int32),
    )
    forest = _with_members(forest, membership_values)
    how, kind = dict(enumerate(_AGGREGATES))[aggregate_function], dict(enumerate(KINDS))[post_transform]
    table = _weights(forest.yes.size, n_targets, own, leaf_targetids, leaf_weights, how)
    return g.cast(transformed(g, _aggregated(g, x, forest, table, how), kind), x.dtype)


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
