"""ONNX models: damaged by byte and by field, and imported."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

from tools.fuzz.frame import Kind
from tools.fuzz.mutators import damaged_bytes

_LARGEST = 6000  # bytes of a model that is damaged
_NUMBERS = (-(2**63), -(10**12), -5, -1, 0, 1, 2, 3, 7, 2**20, 2**31 - 1, 2**31, 10**12, 2**62, 2**63 - 1)
_PLACES = ("../weights", "/etc/passwd", "a/../../b", "weights", "", ".", "\x00", "C:\\weights", "x" * 5000, "/dev/zero")
_NESTED = (1, 3, 10, 20, 28)


class Onnx(Kind):
    name = "onnx"
    suffix = ".onnx"
    seconds = 60.0  # nested branches and loops, many times

    def prepare(self) -> None:
        import rlx

        self.rlx = rlx
        self.models = models()

    def make(self, rng: random.Random) -> bytes:
        data = rng.choice(self.models)
        if rng.random() < 0.25:
            return damaged_bytes(data, rng, self.models)
        return damaged_fields(data, rng)

    def attempt(self, data: bytes) -> Any:
        graph = self.rlx.from_onnx(data)
        graph.verify()
        assert str(self.rlx.parse(str(graph))) == str(graph)
        for weight in graph.weights.values():
            weight.numpy() if hasattr(weight, "numpy") else weight
        return graph


@cache
def models() -> list[bytes]:
    """Return ONNX's own small cases, and models of functions, nested branches and loops."""
    import warnings

    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's warnings about the values that ONNX generates
        collect: Any = collect_testcases
        made = [test.model.SerializeToString() for test in collect(None)]
    return [data for data in made if len(data) < _LARGEST] + [_constants(), _nested(3), _recursive()] * 40


def _constants() -> bytes:
    """Return a model whose shapes are constants, which damage makes large."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    names = {"shape": [2, 3], "repeats": [2, 1], "start": 0, "limit": 8, "delta": 1, "axes": [0], "pads": [0, 1, 0, 1]}
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["a"]),
        helper.make_node("Expand", ["a", "shape"], ["b"]),
        helper.make_node("Tile", ["b", "repeats"], ["c"]),
        helper.make_node("Pad", ["c", "pads"], ["d"], mode="reflect"),
        helper.make_node("Range", ["start", "limit", "delta"], ["e"]),
        helper.make_node("ReduceSum", ["d", "axes"], ["f"]),
        helper.make_node("Resize", ["d", "", "", "shape"], ["h"]),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
        helper.make_node("OneHot", ["e", "limit", "shape"], ["i"]),
        helper.make_node("NonZero", ["c"], ["j"]),
        helper.make_node("Shape", ["j"], ["k"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "f", "h", "k")]
    tensors = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in names.items()]
    return helper.make_model(helper.make_graph(nodes, "g", [x], outputs, tensors)).SerializeToString()


def _nested(depth: int) -> bytes:
    """Return nested branches and loops."""
    from onnx import TensorProto, helper

    leaf = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"])], "g", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, [2])]
    )
    inner = leaf
    for level in range(depth):
        result = f"r{level}"
        if level % 2:
            one = helper.make_node("Loop", ["n", "", "x"], [result], body=_body(inner.output[0].name, inner))
        else:
            one = helper.make_node("If", ["c"], [result], then_branch=inner, else_branch=leaf)
        inner = helper.make_graph([one], "g", [], [helper.make_tensor_value_info(result, TensorProto.FLOAT, [2])])
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("n", TensorProto.INT64, []),
    ]
    return helper.make_model(helper.make_graph(inner.node, "g", inputs, inner.output)).SerializeToString()


def _body(result: str, inner: Any) -> Any:
    from onnx import TensorProto, helper

    names = [("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("carry", TensorProto.FLOAT, [2])]
    tensors = [helper.make_tensor_value_info(*n) for n in names]
    outputs = [tensors[1], helper.make_tensor_value_info(result, TensorProto.FLOAT, [2])]
    return helper.make_graph(inner.node, "body", tensors, outputs)


def _recursive() -> bytes:
    """Return functions that each call the next one twice. The last one calls itself."""
    from onnx import TensorProto, helper

    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    functions = []
    for i in range(20):
        other = f"f{min(i + 1, 19)}"
        calls = [
            helper.make_node(other, ["x"], ["a"], domain="local"),
            helper.make_node(other, ["a"], ["y"], domain="local"),
        ]
        functions.append(helper.make_function("local", f"f{i}", ["x"], ["y"], calls, opsets))
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="local")], "g", tensors[:1], tensors[1:])
    return helper.make_model(graph, opset_imports=opsets, functions=functions).SerializeToString()


def damaged_fields(data: bytes, rng: random.Random) -> bytes:
    """Return a model with some of its fields changed."""
    import onnx

    model = onnx.ModelProto()
    model.ParseFromString(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        try:
            rng.choice(_DAMAGE)(model, rng)
        except (IndexError, ValueError, TypeError):
            continue  # the model has no such field
    return model.SerializeToString()


def _sizes(model: Any, rng: random.Random) -> None:
    tensor = rng.choice([*model.graph.input, *model.graph.output]).type.tensor_type
    dim = rng.choice(tensor.shape.dim)
    if rng.random() < 0.3:
        dim.dim_param = rng.choice(("n", "2*n", "", "n%0", "max", "\u200b", "n" * 300, "n//m", "lambda"))
    else:
        dim.dim_value = rng.choice(_NUMBERS)


def _shape_of_weight(model: Any, rng: random.Random) -> None:
    tensor = rng.choice(model.graph.initializer)
    tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_NUMBERS)


def _elements(model: Any, rng: random.Random) -> None:
    import numpy as np
    from onnx import numpy_helper

    tensor = rng.choice(model.graph.initializer)
    array = numpy_helper.to_array(tensor).copy()
    with np.errstate(all="ignore"):
        array = array.reshape(-1)
        array[rng.randrange(array.size)] = np.array(rng.choice(_NUMBERS)).astype(array.dtype)
        array = array.reshape(tuple(tensor.dims))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _edges(model: Any, rng: random.Random) -> None:
    node = rng.choice(_all_nodes(model.graph))
    names = [n for other in _all_nodes(model.graph) for n in (*other.input, *other.output)] + ["", "gone"]
    field = node.input if rng.random() < 0.7 else node.output
    if rng.random() < 0.3:
        field.append(rng.choice(names))
    elif rng.random() < 0.2:
        del field[rng.randrange(len(field))]
    else:
        field[rng.randrange(len(field))] = rng.choice(names)


def _attributes(model: Any, rng: random.Random) -> None:
    attribute = rng.choice([a for n in _all_nodes(model.graph) for a in n.attribute])
    way = rng.randrange(5)
    if way == 0:
        attribute.type = rng.randrange(15)
    elif way == 1:
        attribute.i = rng.choice(_NUMBERS)
    elif way == 2 and attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_NUMBERS)
    elif way == 3:
        attribute.ints.append(rng.choice(_NUMBERS))
        attribute.floats.append(rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf"))))
    else:
        attribute.name = rng.choice(("axis", "axes", "to", "body", "then_branch", "pads", "kernel_shape", "perm", ""))


def _ops(model: Any, rng: random.Random) -> None:
    from rlx.importers.onnx import imports
    from rlx.importers.onnx.rules import structures

    node = rng.choice(_all_nodes(model.graph))
    domain, _, op = rng.choice(sorted({*imports.rules, *structures})).rpartition(".")
    node.op_type, node.domain = op, domain
    if domain and all(o.domain != domain for o in model.opset_import):
        model.opset_import.add(domain=domain, version=1)


def _repeated(model: Any, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    for _ in range(rng.choice((1, 3, 50))):
        model.graph.node.add().CopyFrom(node)


def _versions(model: Any, rng: random.Random) -> None:
    rng.choice(model.opset_import).version = rng.choice((-1, 0, 1, 6, 7, 9, 12, 18, 26, 27, 99, 2**62))


def _external(model: Any, rng: random.Random) -> None:
    tensor = rng.choice(model.graph.initializer)
    tensor.data_location = tensor.EXTERNAL
    for key, value in (("location", rng.choice(_PLACES)), ("offset", rng.choice(("0", "-1", "x", str(2**62))))):
        tensor.external_data.add(key=key, value=value)


def _dtypes(model: Any, rng: random.Random) -> None:
    if rng.random() < 0.5:
        rng.choice(model.graph.input).type.tensor_type.elem_type = rng.randrange(-1, 27)
    else:
        rng.choice(model.graph.initializer).data_type = rng.randrange(-1, 27)


def _names(model: Any, rng: random.Random) -> None:
    value = rng.choice([*model.graph.input, *model.graph.output, *model.graph.initializer])
    value.name = rng.choice(("", "x", "\x00", "a" * 3000, "%x", '"', "é", *(i.name for i in model.graph.input)))


def _depth(model: Any, rng: random.Random) -> None:
    deep = type(model)()
    deep.ParseFromString(_nested(rng.choice(_NESTED)))
    model.CopyFrom(deep)


def _all_nodes(graph: Any) -> list[Any]:
    nodes = list(graph.node)
    return nodes + [n for node in nodes for a in node.attribute if a.HasField("g") for n in _all_nodes(a.g)]


_DAMAGE: tuple[Callable[[Any, random.Random], None], ...] = (
    *(_sizes, _shape_of_weight, _elements, _elements, _edges, _edges, _attributes, _attributes, _attributes, _ops),
    *(_repeated, _versions, _external, _dtypes, _names, _depth),
)
KIND = Onnx()
