"""Checkpoints: training continues from one exactly, to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import rlx
from rlx.train import SGD, Adafactor, Adam, AdamW, DynamicLossScale, TrainStep, checkpoint, cosine
from tests.drawing import drawn
from tests.train import mlp


def made(device: Any = "xla") -> TrainStep:
    """Return a step with every kind of state: optimiser, scale, sums of gradients, counters, and a frozen parameter."""
    options: dict[str, Any] = {"precision": "f16", "loss_scale": DynamicLossScale(64.0, 2), "accumulate": 2}
    return TrainStep(mlp.graph(), Adam(cosine(0.05, 9)), wrt=["w1", "b1"], device=device, threads=1, **options)


@drawn("device", [rlx.Device.CPU, rlx.Device.XLA])
def test_resumes_to_the_bit(device: Any, tmp_path: Path) -> None:
    data = mlp.batches(10)
    whole, first, second = (made(device) for _ in range(3))
    whole.set_params(mlp.params())
    first.set_params(mlp.params())
    losses = [whole(batch)["loss"] for batch in data]
    for batch in data[:5]:
        first(batch)
    path = tmp_path / "half.safetensors"
    first.save(path)
    second.load(path)
    assert [second(batch)["loss"] for batch in data[5:]] == losses[5:]
    expected, found = whole.params() | whole.state(), second.params() | second.state()
    assert expected.keys() == found.keys() == load_file(path).keys()
    for name, array in expected.items():
        assert array.dtype == found[name].dtype and array.tobytes() == found[name].tobytes(), name
    # A step that has already run goes back.
    whole.load(path)
    assert whole.num_updates == 2 and [whole(batch)["loss"] for batch in data[5:]] == losses[5:]


def test_is_a_file_of_weights(tmp_path: Path) -> None:
    step = made()
    step.set_params(mlp.params())
    (batch,) = mlp.batches(1)
    step(batch)
    step.save(tmp_path / "weights.safetensors")
    program = rlx.Session(rlx.Device.XLA).compile(mlp.graph(), params=tmp_path / "weights.safetensors")
    expected = rlx.evaluate(mlp.graph(), {**batch, **step.params()})
    np.testing.assert_allclose(program.run(batch)[0], expected[0], rtol=1e-5)


def test_what_does_not_fit_is_refused_and_named(tmp_path: Path) -> None:
    step = made()
    step.set_params(mlp.params())
    (batch,) = mlp.batches(1)
    step(batch)
    path = tmp_path / "step.safetensors"
    step.save(path)
    before = step.params() | step.state()

    other = TrainStep(mlp.graph(), SGD(0.1, 0.9), device="xla")
    with pytest.raises(rlx.Error) as caught:
        other.load(path)
    lines = str(caught.value).splitlines()
    assert lines[1] == "  the file has states of the optimiser 'adam', and this training has the optimiser 'sgd'"
    assert "adam_m" not in str(caught.value) and "sgd_trace" not in str(caught.value)
    assert "  'gradient_sum/b1' has no place here" in lines
    with pytest.raises(rlx.Error, match="3 parameters are not set"):  # nothing was loaded
        other.params()

    tensors = load_file(path)
    tensors["adam_m/w1"] = tensors["adam_m/w1"].T.copy()
    tensors["train/step"] = tensors["train/step"].astype(np.int64)
    del tensors["w2"]
    save_file(tensors, tmp_path / "changed.safetensors")
    with pytest.raises(rlx.Error) as caught:
        step.load(tmp_path / "changed.safetensors")
    for part in ("'w2' (f32[6, 4]) is missing", "'adam_m/w1' is float32[6, 5]", "'train/step' is int64[]"):
        assert part in str(caught.value)

    (tmp_path / "short.safetensors").write_bytes(path.read_bytes()[:-100])
    with pytest.raises(rlx.Error, match="cannot read"):
        step.load(tmp_path / "short.safetensors")
    with pytest.raises(rlx.Error, match="no such file"):
        step.load(tmp_path / "none.safetensors")
    for name, array in (step.params() | step.state()).items():
        assert array.tobytes() == before[name].tobytes(), name


class OneMoment(SGD):
    """An optimiser of the user, with an underscore in its name."""

    name = "one_moment"


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        (
            Adam(1e-3),
            AdamW(1e-3),
            "the file has states of the optimiser 'adamw', and this training has the optimiser 'adam'",
        ),
        (
            AdamW(1e-3),
            Adam(1e-3),
            "the file has states of the optimiser 'adam', and this training has the optimiser 'adamw'",
        ),
        (
            SGD(0.1),
            Adafactor(0.1),
            "states of the optimiser 'adafactor', and this training has the optimiser 'sgd' without states",
        ),
        (Adam(0.1), SGD(0.1), "the file has no states of an optimiser, and this training has the optimiser 'adam'"),
        (
            SGD(0.1, 0.9),
            OneMoment(0.1, 0.9),
            "states of the optimiser 'one_moment', and this training has the optimiser 'sgd'",
        ),
    ],
)
def test_another_optimiser_is_named_first_and_then_other_shapes(
    ours: Any, theirs: Any, message: str, tmp_path: Path
) -> None:
    first, other = rlx.nn.Linear(4, 3), rlx.nn.Linear(4, 5)
    data = np.eye(4, dtype=np.float32), np.arange(4) % 3
    options: Any = {
        "loss": "cross_entropy",
        "device": "xla",
        "progress": False,
        "checkpoint": tmp_path / "c.safetensors",
    }
    fit: Any = rlx.train.fit
    fit(first, data, optimizer=theirs, **options)
    for model, more in (
        (first, []),
        (other, ["'weight' is float32[3, 4], not f32[5, 4]", "'bias' is float32[3], not f32[5]"]),
    ):
        with pytest.raises(rlx.Error) as caught:
            fit(model, data, optimizer=ours, **{**options, "resume": True})
        lines = [line.strip() for line in str(caught.value).splitlines()]
        assert message in lines[1] and sorted(lines[2 : 2 + len(more)]) == sorted(more)
        assert lines[2 + len(more)].startswith("hint: ")


def test_a_file_is_whole_or_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = made()
    step.set_params(mlp.params())
    path = tmp_path / "step.safetensors"
    step.save(path)
    content = path.read_bytes()
    (batch,) = mlp.batches(1)
    step(batch)

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        with pytest.raises(rlx.Error, match=r"cannot write .*No space left"):
            step.save(path)
    assert path.read_bytes() == content and os.listdir(tmp_path) == [path.name]
    step.save(path)
    assert path.read_bytes() != content and os.listdir(tmp_path) == [path.name]
    with pytest.raises(rlx.Error, match="cannot write"):
        step.save(tmp_path / "no" / "folder.safetensors")


def test_every_dtype_is_kept_as_the_format_has_it(tmp_path: Path) -> None:
    """Tensors equal those of the format's own package to the bit, including shapes without axes or elements."""
    rng = np.random.default_rng(0)
    names = ("f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "u8", "u32", "bool", "c64")
    tensors = {}
    for i, name in enumerate(names):
        for shape in ((), (3,), (0, 2), (2, 1 + i)):
            values = rng.integers(0, 2, shape).astype(rlx.dtype(name).numpy)
            tensors[f"{name}/{len(shape)}/é{shape}"] = values.T if len(shape) == 2 else values
    checkpoint.write(tmp_path / "all.safetensors", tensors)
    found = load_file(tmp_path / "all.safetensors")
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == array.tobytes(), name


STOPS_BEFORE_THE_END = """
import os, sys
import numpy as np
from rlx.train import checkpoint
def stop(_):
    print("half", flush=True)
    sys.stdin.readline()
os.fsync = stop
checkpoint.write(sys.argv[1], {"w": np.ones(1000, np.float32)})
"""


@pytest.mark.skipif(os.name == "nt", reason="needs locks")
def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "step.safetensors"
    command = [sys.executable, "-c", STOPS_BEFORE_THE_END, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stdout.readline() == b"half\n"
        process.kill()
        process.wait()
    assert len(os.listdir(tmp_path)) == 1
    checkpoint.write(path, {"w": np.zeros(3, np.float32)})
    assert os.listdir(tmp_path) == [path.name]
