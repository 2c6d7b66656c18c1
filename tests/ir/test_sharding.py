"""Meshes and shardings: refused values, text, and results of transforms, passes and training."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.interface import Argument
from rlx.train import Adafactor, AdamW
from rlx.train.options import TrainingOptions
from rlx.train.program import training_graph

MESH = rlx.Mesh({"data": 4, "model": 2})


def layers() -> rlx.Graph:
    g = rlx.Graph("layers", mesh=MESH)
    x = g.input("x", ("batch", 16), sharding=(("data", "model"),))
    w, v = g.param("w", (16, 32), sharding=(None, "model")), g.param("v", (32, 4), sharding=("model",))
    total = g.state("total", (), sharding=())
    loss = g.mean(g.shard(g.relu(x @ w), ("data", "model")) @ v)
    g.update(total, total + loss)
    g.set_outputs({"loss": loss})
    return g


def shardings(graph: rlx.Graph) -> dict[str, Any]:
    return {a.name: a.sharding for a in graph.arguments}


WHOLE = {"x": (("data", "model"), ()), "w": ((), ("model",)), "v": (("model",), ()), "total": ()}


def test_text_says_it_all() -> None:
    g = layers()
    assert shardings(g) == WHOLE
    text = str(g)
    for part in ('rlx.mesh = "data=4, model=2"', 'rlx.sharding = "data+model, _"', '{sharding = "data, model"}'):
        assert part in text
    for again in (rlx.parse(text), g.clone(), copy.deepcopy(g), rlx.Graph.from_module(g.module)):
        assert shardings(again) == WHOLE and again.mesh == MESH and str(again) == text


@pytest.mark.parametrize(
    ("shape", "sharding", "message"),
    [
        ((8, 8), ("dta",), "has no axis 'dta' .did you mean 'data'"),
        ((8, 8), ("data", "data"), "axis 'data' is used twice"),
        ((8, 8), (("model", "data"), "model"), "axis 'model' is used twice"),
        ((8, 6), (None, "data"), r"dimension 1 of f32\[8, 6\] is spread over data, 4 devices, which do not divide 6"),
        ((12, 8), (("data", "model"),), "spread over data.model, 8 devices, which do not divide 12"),
        ((8, 8), ("data", None, None), "a sharding of 3 dimensions for a tensor of 2"),
        ((8, 8), "data", "sharding"),
        ((8, 8), (1,), "an entry of a sharding is the name of an axis"),
        ((8, 8), (("data", None),), "an entry of a sharding"),
        ((8, 8), ("da ta",), "is no name of an axis"),
        ((8, 8), 3, "a sharding is a tuple"),
    ],
)
@pytest.mark.parametrize("kind", ["input", "param", "state", "shard"])
def test_wrong_shardings_are_refused(kind: str, shape: Any, sharding: Any, message: str) -> None:
    g = rlx.Graph("g", mesh=MESH)
    with pytest.raises(rlx.ShapeError, match=message):
        if kind == "shard":
            g.shard(g.input("x", shape), sharding)
        else:
            getattr(g, kind)("x", shape, sharding=sharding)
    assert not g.arguments or kind == "shard"


def test_a_sharding_needs_a_mesh() -> None:
    with pytest.raises(rlx.ShapeError, match=r"param 'w': a sharding \(data, _\) is of a mesh, and the graph has none"):
        rlx.Graph("g").param("w", (4, 4), sharding=("data",))
    g = layers()
    with pytest.raises(rlx.Error, match="the graph has none"):
        g.mesh = None
    with pytest.raises(rlx.Error, match="no axis 'data'"):
        g.mesh = rlx.Mesh({"model": 2})
    with pytest.raises(rlx.Error, match=r"mesh must be a rlx\.Mesh"):
        rlx.Graph("g", mesh={"data": 4})  # pyright: ignore[reportArgumentType]
    assert g.mesh == MESH


@pytest.mark.parametrize(
    ("axes", "message"),
    [({}, "axes by name"), (None, "axes by name"), ({"a b": 1}, "has a name"), ({1: 1}, "has a name")]
    + [({"a": n}, "positive number") for n in (0, -1, True, 1.5, "2")]
    + [({"a": 1 << 20, "b": 1 << 20}, "larger than")],
)
def test_wrong_meshes_are_refused(axes: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        rlx.Mesh(axes)


TEXT = """module attributes {{rlx.mesh = {mesh}}} {{
  func.func @f(%x: tensor<8x4xf32> {{rlx.name = "x"{sharding}}}) -> tensor<8x4xf32> {{
    %0 = rlx.shard(%x) {{sharding = {op}}} : tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }}
}}"""


@pytest.mark.parametrize(
    ("mesh", "sharding", "op", "message"),
    [
        ('"data=4"', '"dat, _"', '"_, _"', "argument 0 of 'f': the mesh data=4 has no axis 'dat'"),
        ('"data=4"', '"data"', '"_, _"', '"data" is a sharding of 1 dimensions, for a tensor of 2'),
        ('"data=4"', '"data, data"', '"_, _"', "used twice"),
        ('"data=3"', '"data, _"', '"_, _"', "do not divide 8"),
        ('"data=4"', "4 : i64", '"_, _"', "'rlx.sharding' is a string"),
        ('"data=0"', '"data, _"', '"_, _"', "positive number"),
        ('"data=4, data=2"', '"data, _"', '"_, _"', "'rlx.mesh' is axes with their sizes"),
        ('"data"', '"data, _"', '"_, _"', "'rlx.mesh' is axes with their sizes"),
        ("4 : i64", '"data, _"', '"_, _"', "'rlx.mesh' is a string"),
        ('"data=4"', '"data, _"', '"model, _"', "no axis 'model'"),
        ('"data=4"', '"data, _"', '"data, _, _"', "a sharding of 3 dimensions"),
        ('"data=3"', None, '"data, _"', "rlx.shard: dimension 0"),
    ],
)
def test_wrong_texts_are_refused(mesh: str, sharding: str | None, op: str, message: str) -> None:
    given = "" if sharding is None else f", rlx.sharding = {sharding}"
    with pytest.raises(rlx.Error, match=message):
        rlx.parse(TEXT.format(mesh=mesh, sharding=given, op=op))


def test_text_without_a_mesh() -> None:
    with pytest.raises(rlx.Error, match=r"argument 0 of 'f'.*is of a mesh, and the graph has none"):
        rlx.parse(TEXT.replace("rlx.mesh = {mesh}", "").format(sharding=', rlx.sharding = "data, _"', op='"_, _"'))
    alone = rlx.parse(TEXT.replace("rlx.mesh = {mesh}", "").format(sharding="", op='"data, _"'))
    x = np.ones((8, 4), np.float32)
    np.testing.assert_array_equal(rlx.evaluate(alone, {"x": x})[0], x)


def test_transforms_keep_shardings() -> None:
    g = layers()
    gradients = rlx.grad(g, ["w", "v"])
    assert shardings(gradients) == WHOLE and gradients.mesh == MESH
    for name, sharding in (("w", '"_, model"'), ("v", '"model, _"')):
        output = next(
            t for o, t in zip(gradients.outputs, gradients.output_tensors, strict=True) if o.name == f"grad_{name}"
        )
        assert str(output.value.owner.attributes["sharding"]) == sharding
    tangents = rlx.jvp(g, ["w"])
    assert shardings(tangents) == WHOLE | {"tangent_w": WHOLE["w"]}
    batched = rlx.vmap(g, {"x": 1, "w": 0, "total": 0}, size=3)
    spread = {"x": (("data", "model"), (), ()), "w": ((), (), ("model",)), "total": ((),)}
    assert shardings(batched) == WHOLE | spread
    assert 'sharding = "_, data, model"' in str(batched)
    for derived in (rlx.hvp(g, ["w"]), rlx.vjp(g, ["w"]), rlx.checkpoint(g)):
        assert shardings(derived).items() >= WHOLE.items() and derived.mesh == MESH
        derived.verify()
    bound = rlx.passes.run(g, "builtin.module(rlx-bind{batch=8},rlx-simplify,canonicalize,cse,rlx-fuse)")
    assert shardings(bound) == WHOLE and bound.mesh == MESH
    with pytest.raises(rlx.Error, match="do not divide 9"):
        rlx.passes.run(g, "rlx-bind{batch=9}")


def test_an_optimiser_keeps_what_belongs_to_a_parameter_as_that_is() -> None:
    made = training_graph(layers(), AdamW(1e-3), TrainingOptions(loss="loss", ema=0.9, accumulate=2)).graph
    found = shardings(made)
    for name in ("w", "v"):
        for prefix in ("", "adamw_m/", "adamw_v/", "ema/", "gradient_sum/"):
            assert found[prefix + name] == WHOLE[name]
    assert found["train/step"] is None
    # The row and column statistics have other shapes than the parameter.
    rows = training_graph(layers(), Adafactor(1e-3)).graph
    others = {n: s for n, s in shardings(rows).items() if n.startswith("adafactor_") and s is not None}
    assert all(rows.argument(n).shape.dims == rows.argument(n.rpartition("/")[2]).shape.dims for n in others)


def test_called_in_a_graph_of_another_mesh() -> None:
    inner = rlx.Graph("inner", mesh=MESH)
    x = inner.input("x", (4, 4))
    inner.set_outputs([x @ inner.param("w", (4, 4), sharding=("data",), value=np.eye(4, dtype=np.float32))])
    for mesh, kept in ((MESH, (("data",), ())), (None, None)):
        outer = rlx.Graph("outer", mesh=mesh)
        outer.set_outputs([rlx.call(inner, outer.input("x", (4, 4)))])
        outer.verify()
        assert shardings(outer)["w"] == kept


def test_arguments_are_equal_by_their_shardings() -> None:
    plain = Argument("w", "param", rlx.Shape((4, 4)))
    assert (
        plain
        == Argument("w", "param", rlx.Shape((4, 4)))
        != Argument("w", "param", rlx.Shape((4, 4)), sharding=((), ()))
    )
