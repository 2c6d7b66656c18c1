"""Pytrees: flattening, unflattening, and paths to leaves."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.pytree import flatten, map_leaves

Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Layer:
    weight: Any
    bias: Any = None
    kind: str = field(default="relu", metadata={"static": True})

    def __post_init__(self) -> None:
        assert self.weight is not None  # does not run when a tree is built from leaves of another kind


TREES = [
    (1, 1, ["p"]),
    (None, 0, []),
    ([], 0, []),
    ({"b": 1, "a": [2, (3, None)]}, 3, ['p["b"]', 'p["a"][0]', 'p["a"][1][0]']),
    (OrderedDict(x=1), 1, ['p["x"]']),
    ({0: "text", 'quo"te': 2}, 2, ["p[0]", 'p["quo\\"te"]']),
    (Pair(1, Pair(2, 3)), 3, ["p.left", "p.right.left", "p.right.right"]),
    ([Layer(1, kind="gelu")], 1, ["p[0].weight"]),
]


@pytest.mark.parametrize(("tree", "count", "paths"), TREES)
def test_is_put_together_again(tree: Any, count: int, paths: list[str]) -> None:
    leaves, structure = flatten(tree)
    assert len(leaves) == count == structure.num_leaves
    assert list(structure.paths("p")) == paths
    again = structure.build(leaves)
    assert again == tree and type(again) is type(tree)
    assert flatten(map_leaves(lambda leaf: [leaf], tree))[1] == structure or count


def test_structures_tell_trees_apart() -> None:
    trees = [[1], (1,), {"a": 1}, {"b": 1}, 1, None, [[1]], [None, 1], Pair(1, None), Layer(1), Layer(1, kind="gelu")]
    assert len({flatten(tree)[1] for tree in trees}) == len(trees)
    equal = [1, True, 1.0, 0.0, -0.0, 1 + 0j, complex(1, -0.0), (1,), (True,), ((0.0,),), ((-0.0,),)]
    assert len({flatten(Layer(1, kind=kind))[1] for kind in equal}) == len(equal)  # type: ignore[arg-type]
    assert flatten({"a": 1, "b": 2})[1] != flatten({"b": 1, "a": 2})[1]  # user loops depend on the order


def test_what_is_no_container_is_a_leaf() -> None:
    leaves = flatten([np.ones(3), "ab", rlx.Shape((1, 2)), {1, 2}])[0]
    assert len(leaves) == 4
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(rlx.Error, match="nested more than 200 deep"):
        flatten(endless)
    with pytest.raises(rlx.Error, match="static field 'kind' of Layer cannot be hashed: list"):
        flatten(Layer(1, kind=[]))  # type: ignore[arg-type]
