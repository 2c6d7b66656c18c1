"""Trees, linear classifiers and support vector machines of `ai.onnx.ml`, compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import rlx
from tests.conformance.compiled import compile_graphs
from tests.drawing import drawn
from tests.importers.test_onnx_contrib import run_by_onnxruntime

RANDOM = np.random.default_rng(8)
FEATURES, ROWS, SHARES = 4, 9, 16
# Includes the values that trees compare with, and missing values.
X = RANDOM.choice(np.array([-1.5, -0.5, 0.0, 0.5, 1.0, np.nan], np.float32), (ROWS, FEATURES))
DENSE = RANDOM.normal(size=(ROWS, FEATURES)).astype(np.float32)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def model(op: str, x: np.ndarray, results: int, attributes: dict[str, Any], version: int = 3) -> bytes:
    """Return the bytes of a model of one node."""
    outputs = [onnx.ValueInfoProto(name=f"y{i}") for i in range(results)]
    node = helper.make_node(op, ["x"], [o.name for o in outputs], domain="ai.onnx.ml", **attributes)
    read = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), ["rows", *x.shape[1:]])
    graph = helper.make_graph([node], "g", [read], outputs)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def forest(trees: int, targets: int, kinds: Any, missing: bool, positive: bool, prefix: str) -> dict[str, Any]:
    """Return attributes of random trees: nodes in any order after the root, leaves with weights for all targets."""
    columns: dict[str, list[Any]] = {n: [] for n in ("tree", "id", "feature", "value", "mode", "yes", "no", "nan")}
    gives: dict[str, list[Any]] = {n: [] for n in ("tree", "id", "to", "weight")}

    def grow(tree: int, number: int, depth: int, count: list[int]) -> None:
        is_leaf = depth == 0 or (number and RANDOM.random() < 0.2)
        yes, no = (0, 0) if is_leaf else (count[0], count[0] + 1)
        value = float(RANDOM.choice([-0.5, 0.0, 0.5]))
        mode = "LEAF" if is_leaf else str(RANDOM.choice(kinds))
        row = (
            tree,
            number,
            int(RANDOM.integers(FEATURES)),
            value,
            mode,
            yes,
            no,
            int(missing and RANDOM.random() < 0.5),
        )
        for name, item in zip(columns, row, strict=True):
            columns[name].append(item)
        if is_leaf:
            for to in range(targets):
                weight = float(RANDOM.random() if positive else RANDOM.normal()) / trees
                for name, item in zip(gives, (tree, number, to, weight), strict=True):
                    gives[name].append(item)
            return
        count[0] += 2
        for child in (yes, no):
            grow(tree, child, depth - 1, count)

    for tree in range(trees):
        grow(tree, 0, 3, [1])
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    made = {f"nodes_{n}": c for n, c in zip(names, columns.values(), strict=False)}
    made["nodes_missing_value_tracks_true"] = columns["nan"]
    return made | {
        f"{prefix}_{n}": c for n, c in zip(("treeids", "nodeids", "ids", "weights"), gives.values(), strict=True)
    }


def cases() -> Iterator[tuple[str, bytes, np.ndarray]]:
    yield from _trees()
    yield from _linear()
    yield from _vectors()
    yield "vectorizer", model("FeatureVectorizer", DENSE, 1, {"inputdimensions": [FEATURES]}), DENSE
    kinds = RANDOM.integers(0, 5, (ROWS, 2))
    yield "one hot", model("OneHotEncoder", kinds, 1, {"cats_int64s": [3, 0, 7], "zeros": 1}), kinds


def _trees() -> Iterator[tuple[str, bytes, np.ndarray]]:
    for kinds in (*((m,) for m in MODES), MODES):
        for missing in (False, True):
            attributes = forest(3, 1, kinds, missing, False, "target")
            yield f"regressor {kinds}", model("TreeEnsembleRegressor", X, 1, {"n_targets": 1, **attributes}), X
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        for base in ([], [0.5, -1.0, 2.0]):
            attributes = forest(4, 3, MODES[:1], False, False, "target")
            attributes |= {"n_targets": 3, "aggregate_function": how, **({"base_values": base} if base else {})}
            yield f"regressor {how} {base}", model("TreeEnsembleRegressor", X, 1, attributes), X
    doubles = X.astype(np.float64)
    attributes = forest(3, 2, MODES[:1], False, False, "target")
    yield "doubles", model("TreeEnsembleRegressor", doubles, 1, {"n_targets": 2, **attributes}), doubles
    integers = RANDOM.integers(-1, 2, (ROWS, FEATURES))
    attributes = forest(3, 3, MODES[:1], False, True, "class") | {"classlabels_int64s": [4, 7, 9]}
    yield "integers", model("TreeEnsembleClassifier", integers, 2, attributes), integers
    for post in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"):
        shared = {"post_transform": post, "classlabels_int64s": [4, 7, 9]}
        attributes = forest(3, 3, MODES[:1], False, True, "class") | shared
        yield f"classifier {post}", model("TreeEnsembleClassifier", X, 2, attributes), X
        if post == "PROBIT":
            continue
        for positive in (False, True):
            for base in ([], [0.25]):
                attributes = forest(3, 1, MODES[:1], True, positive, "class")
                attributes |= {"post_transform": post, "classlabels_int64s": [5, 3]} | (
                    {"base_values": base} if base else {}
                )
                yield f"two classes {post} {positive} {base}", model("TreeEnsembleClassifier", X, 2, attributes), X


def _linear() -> Iterator[tuple[str, bytes, np.ndarray]]:
    for post in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        weights = RANDOM.normal(size=3 * FEATURES).tolist()
        attributes = {"coefficients": weights, "intercepts": [0.1, 0.2, -0.3], "classlabels_ints": [3, 1, 2]}
        yield f"linear {post}", model("LinearClassifier", DENSE, 2, {"post_transform": post, **attributes}), DENSE
        attributes = {"coefficients": weights[:FEATURES], "intercepts": [0.1], "classlabels_ints": [3, 1]}
        yield f"linear, two {post}", model("LinearClassifier", DENSE, 2, {"post_transform": post, **attributes}), DENSE
    attributes = {"coefficients": weights[: 2 * FEATURES], "intercepts": [0.1, 0.2], "targets": 2}
    yield "regressor", model("LinearRegressor", DENSE, 1, {"post_transform": "SOFTMAX", **attributes}), DENSE


def _vectors() -> Iterator[tuple[str, bytes, np.ndarray]]:
    for kind in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        common = {"kernel_type": kind, "kernel_params": [0.3, 0.5, 2.0]}
        attributes = {"coefficients": RANDOM.normal(size=5).tolist(), "rho": [0.2], "n_supports": 5, **common}
        attributes["support_vectors"] = RANDOM.normal(size=5 * FEATURES).tolist()
        for one in (0, 1):
            yield f"svr {kind}", model("SVMRegressor", DENSE, 1, {"one_class": one, **attributes}), DENSE
        for counts in ((3, 2), (2, 3, 1)):
            pairs = len(counts) * (len(counts) - 1) // 2
            several = {"vectors_per_class": list(counts), "classlabels_ints": [7, 5, 6][: len(counts)], **common}
            several["support_vectors"] = RANDOM.normal(size=sum(counts) * FEATURES).tolist()
            several["coefficients"] = RANDOM.normal(size=sum(counts) * (len(counts) - 1)).tolist()
            several["rho"] = RANDOM.normal(size=pairs).tolist()
            for post in ("NONE", "LOGISTIC"):
                yield f"svc {kind} {post}", model("SVMClassifier", DENSE, 2, {"post_transform": post, **several}), DENSE
            shares = {"prob_a": [-1.5, -0.7, -1.1][:pairs], "prob_b": [0.1, -0.2, 0.3][:pairs]}
            yield f"svc {kind} shares", model("SVMClassifier", DENSE, 2, {**shares, **several}), DENSE
    straight = {"coefficients": RANDOM.normal(size=FEATURES).tolist(), "rho": [0.2], "kernel_type": "LINEAR"}
    straight["kernel_params"] = [0.0, 0.0, 0.0]
    yield "svr, linear", model("SVMRegressor", DENSE, 1, {"n_supports": 0, **straight}), DENSE


CASES = list(cases())


def check(name: str, got: Any, wanted: Any) -> None:
    for mine, theirs in zip(got, wanted, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), name
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, err_msg=name)


def test_evaluated() -> None:
    for name, data, x in CASES:
        check(name, rlx.evaluate(rlx.from_onnx(data), {"x": x}), run_by_onnxruntime(data, {"x": x}))


@drawn("share", range(SHARES))
def test_compiled(share: int) -> None:
    chosen = CASES[share::SHARES]
    graphs = [rlx.from_onnx(data) for _, data, _ in chosen]
    for program, g, (name, _, x) in zip(compile_graphs(graphs), graphs, chosen, strict=True):
        assert program.problem is None, (name, program.problem)
        values = {"x": x, **{n: w.numpy() for n, w in g.weights.items()}}
        check(name, program.run([values[a.name] for a in g.arguments]), rlx.evaluate(g, {"x": x}))


def test_trees_of_the_newest_version() -> None:
    """Set membership, and a tree that is a leaf, give the result of an evaluation in Python."""
    x = np.array([[1.0], [2.0], [3.0], [np.nan], [7.0]], np.float64)
    attributes = {
        "n_targets": 2,
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": np.array([6, 0, 0], np.uint8),
        "nodes_splits": np.array([0.0, 2.5, 0.0]),
        "nodes_truenodeids": [0, 1, 3],
        "nodes_trueleafs": [1, 1, 1],
        "nodes_falsenodeids": [1, 2, 3],
        "nodes_falseleafs": [0, 1, 1],
        "leaf_targetids": [0, 1, 0, 1],
        "leaf_weights": np.array([10.0, 20.0, 30.0, 0.5]),
        "tree_roots": [0, 2],
        "membership_values": np.array([1.0, 3.0, 7.0, np.nan]),
    }
    tensors = {n: onnx.numpy_helper.from_array(v, n) if isinstance(v, np.ndarray) else v for n, v in attributes.items()}
    data = model("TreeEnsemble", x, 1, tensors, 5)
    (got,) = rlx.evaluate(rlx.from_onnx(data), {"x": x})
    np.testing.assert_array_equal(got, [[10, 0.5], [0, 20.5], [10, 0.5], [30, 0.5], [10, 0.5]])


@pytest.mark.parametrize(
    "changes",
    [
        *({"tree_roots": [-1]}, {"nodes_truenodeids": [-2]}, {"nodes_falsenodeids": [9]}, {"leaf_targetids": [-1, 0]}),
        *({"aggregate_function": -1}, {"post_transform": -1}, {"nodes_featureids": [4]}),
        *({"nodes_splits": np.zeros(2, np.float32)}, {"leaf_weights": np.zeros(1, np.float32)}),
    ],
    ids=str,
)
def test_numbers_that_name_nothing_are_refused(changes: dict[str, Any]) -> None:
    attributes = {
        "nodes_featureids": [0],
        "nodes_modes": np.zeros(1, np.uint8),
        "nodes_splits": np.zeros(1, np.float32),
        **{
            f"nodes_{n}": [v] for n, v in (("truenodeids", 0), ("falsenodeids", 1), ("trueleafs", 1), ("falseleafs", 1))
        },
        "leaf_targetids": [0, 0],
        "leaf_weights": np.ones(2, np.float32),
        "tree_roots": [0],
    }
    for given in ({}, changes):
        made = {**attributes, **given}
        tensors = {n: onnx.numpy_helper.from_array(v, n) if isinstance(v, np.ndarray) else v for n, v in made.items()}
        data = model("TreeEnsemble", X, 1, tensors, 5)
        if not given:
            rlx.from_onnx(data)
            continue
        with pytest.raises(rlx.ParseError, match="not written as ONNX says"):
            rlx.from_onnx(data)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        (
            "LinearClassifier",
            {"coefficients": [1.0] * 12, "intercepts": [0.0] * 3, "classlabels_ints": [1, 2]},
            "3 scores",
        ),
        (
            "SVMClassifier",
            {
                "coefficients": [1.0] * 2,
                "rho": [0.0],
                "support_vectors": [1.0] * 8,
                "vectors_per_class": [3, -1],
                "classlabels_ints": [1, 2],
            },
            "vectors_per_class",
        ),
        ("LabelEncoder", {"keys_floats": [0.0] * 5000, "values_floats": [0.0] * 5000}, "5000 keys"),
    ],
)
def test_tables_that_do_not_fit_are_refused(op: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        rlx.from_onnx(model(op, DENSE, 1 if op == "LabelEncoder" else 2, attributes))


def test_nan_is_no_category() -> None:
    data = model("OneHotEncoder", X, 1, {"cats_int64s": [0, 1], "zeros": 1})
    check("floats", rlx.evaluate(rlx.from_onnx(data), {"x": X}), run_by_onnxruntime(data, {"x": X}))


def test_maps_are_their_columns() -> None:
    nodes = [helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b"])]
    read = helper.make_tensor_value_info("x", 1, [3, 2])
    graph = helper.make_graph(nodes, "g", [read], [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    x = RANDOM.random((3, 2)).astype(np.float32)
    g = rlx.from_onnx(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    np.testing.assert_array_equal(rlx.evaluate(g, {"x": x})[0], x)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classlabels_int64s": [], "classlabels_strings": ["a", "b", "c"]}, "named by texts"),
        ({"post_transform": "CUBED"}, "the function 'CUBED'"),
        ({"nodes_modes": ["BRANCH_ODD"] * 3}, "BRANCH_ODD"),
        ({"nodes_truenodeids": [1, 0, 0]}, "no trees|whose nodes"),
        ({"nodes_truenodeids": [9, 0, 0]}, "not written as ONNX says"),
        ({"classlabels_int64s": [1]}, "of 1 classes"),
        ({"nodes_values": [0.5, 0.0]}, "attributes of nodes have different lengths"),
        ({"nodes_featureids": [0]}, "not written as ONNX says"),
        ({"nodes_featureids": [4, 0, 0]}, "number 4 of 4 features"),
        ({"nodes_featureids": [-1, 0, 0]}, "number -1 of 4 features"),
        ({"class_ids": [0, -1]}, "number -1 of 3 targets"),
        ({"class_weights": [1.0]}, "attributes of leaves have different lengths"),
        ({"base_values": [1.0, 2.0]}, "2 base values for 3 targets"),
    ],
)
def test_trees_that_are_refused(changes: dict[str, Any], message: str) -> None:
    attributes = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "class_treeids": [0, 0],
        "class_nodeids": [1, 2],
        "class_ids": [0, 2],
        "class_weights": [1.0, 1.0],
        "classlabels_int64s": [1, 2, 3],
    }
    if message.startswith("no trees"):
        changes = {"nodes_modes": ["BRANCH_LEQ"] * 3, "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0]}
    data = model("TreeEnsembleClassifier", X, 2, {n: v for n, v in {**attributes, **changes}.items() if v != []})
    with pytest.raises(rlx.Error, match=message):
        rlx.from_onnx(data)
