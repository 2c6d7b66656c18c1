"""Training steps with inputs, frozen parameters and trained parameters of every dtype."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES, DType
from rlx.train import SGD, TrainStep

TRAINED = [kind for kind in DTYPES if kind.is_float and kind.float_format is not None and kind.float_format.signed]


def ones(kind: DType, shape: tuple[int, ...] = (2, 3)) -> np.ndarray:
    return np.ones(shape).astype(kind.numpy)


def test_every_dtype_in_one_step(tmp_path: Path) -> None:
    """The loss is the sum of all trained parameters, so each gradient is 1. Dtypes that cannot be trained are frozen."""
    g = rlx.Graph("main")
    loss = g.constant(np.float32(0))
    for kind in DTYPES:
        x, f = g.input(f"x_{kind.name}", (2, 3), kind), g.param(f"f_{kind.name}", (2, 3), kind)
        w = g.param(f"w_{kind.name}", (2, 3), kind) if kind in TRAINED else f
        parts = [g.cast(g.real(t) if kind.is_complex else t, "f32") for t in (x, f, w)]
        loss = loss + g.sum(parts[0] + parts[1] + parts[2])
    g.set_outputs([loss])
    values = {a.name: ones(a.shape.dtype) for a in g.params}
    names = [f"w_{kind.name}" for kind in TRAINED]
    step = TrainStep(g, SGD(0.5), params=values, wrt=names, threads=1)
    batch = {a.name: ones(a.shape.dtype) for a in g.inputs}
    assert step(batch)["loss"] == 3 * 6 * len(DTYPES)
    for name, array in step.params().items():
        expected = values[name].astype(np.float32) * 0.5 if name in names else values[name]
        assert array.dtype == values[name].dtype and np.array_equal(array, expected.astype(array.dtype)), name
    step.save(tmp_path / "step.safetensors")
    after = step(batch)["loss"]
    step.load(tmp_path / "step.safetensors")
    assert step(batch)["loss"] == after


@pytest.mark.parametrize("kind", [kind for kind in DTYPES if kind not in TRAINED], ids=str)
@pytest.mark.parametrize("wrt", [None, ["w"]])
def test_dtypes_that_cannot_be_trained_are_refused_by_name(kind: DType, wrt: list[str] | None) -> None:
    g = rlx.Graph("main")
    w = g.param("w", (2, 3), kind)
    g.set_outputs([g.sum(g.cast(g.real(w) if kind.is_complex else w, "f32"))])
    message = "no trainable parameters of floats" if wrt is None and not kind.is_float else f"'w' is .*{kind.name}"
    with pytest.raises(rlx.Error, match=message) as problem:
        TrainStep(g, SGD(0.5), params={"w": ones(kind)}, wrt=wrt)
    assert wrt is not None or problem.value.hint
