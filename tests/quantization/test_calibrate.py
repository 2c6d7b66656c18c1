"""Calibration: ranges of known data, records in files, and errors for invalid data."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.passes.dtypes.quantization_record import CalibrationRecord, scale_of
from rlx.quantization.observers import METHODS, Observer
from rlx.report.progress import progress

Arrays = dict[str, np.ndarray]


def network() -> rlx.Graph:
    """Return a convolution and a product of rows, with activations between."""
    g = rlx.Graph("net")
    x = g.input("x", ("batch", 2, 6, 6))
    h = g.max_pool(g.relu(g.conv(x, g.param("w", (4, 2, 3, 3)), padding=1) + g.param("b", (4, 1, 1))), 2)
    y = g.matmul(g.reshape(h, ("batch", 36)), g.transpose(g.param("w2", (5, 36)))) + g.param("b2", (5,))
    g.set_outputs({"y": y})
    return g


def weights(seed: int = 0) -> Arrays:
    random = np.random.default_rng(seed)
    return {a.name: random.standard_normal(a.shape.static).astype(np.float32) for a in network().params}


def batches(count: int = 3, size: int = 8) -> list[Arrays]:
    random = np.random.default_rng(1)
    return [{"x": random.standard_normal((size, 2, 6, 6)).astype(np.float32)} for _ in range(count)]


def test_ranges_are_those_of_the_data() -> None:
    data, params = batches(), weights()
    record = rlx.calibrate(network(), data, params=params, device=None)
    assert list(record.entries) == ["w", "w2"]
    images = np.concatenate([b["x"] for b in data])
    first, second = record.entries.values()
    np.testing.assert_array_equal(first.low, images.min(axis=(0, 2, 3)))
    np.testing.assert_array_equal(first.high, images.max(axis=(0, 2, 3)))
    assert first.range == (images.min(), images.max())
    hidden = rlx.Graph("hidden")
    x = hidden.input("x", ("batch", 2, 6, 6))
    h = hidden.relu(hidden.conv(x, hidden.param("w", (4, 2, 3, 3)), padding=1) + hidden.param("b", (4, 1, 1)))
    hidden.set_outputs([hidden.reshape(hidden.max_pool(h, 2), ("batch", 36))])
    known = {name: params[name] for name in ("w", "b")}
    rows = np.concatenate([rlx.evaluate(hidden, batch | known)[0] for batch in data])
    np.testing.assert_array_equal(second.high, rows.max(axis=0))
    np.testing.assert_array_equal(second.low, np.minimum(rows.min(axis=0), 0))


def test_compiled_code_sees_the_same() -> None:
    data, params = batches(), weights()
    one = rlx.calibrate(network(), data, params=params, device=None)
    other = rlx.calibrate(network(), data, params=params)
    for name, entry in one.entries.items():
        np.testing.assert_allclose(other.entries[name].high, entry.high, rtol=1e-5, atol=1e-5)


def _observed(x: np.ndarray, method: str, percentile: float = 99.0) -> tuple[float, float]:
    observer = Observer(1, counts=method != "minmax")
    for part in np.array_split(x, 3):
        observer.observe(part)
    return observer.range(method, percentile)


@pytest.mark.parametrize("method", METHODS)
def test_methods_and_outliers(method: str) -> None:
    x = np.random.default_rng(2).standard_normal((300, 40)).astype(np.float32)
    x[7, 3] = 500
    low, high = _observed(x, method)
    if method == "minmax":
        assert (low, high) == (x.min(), 500)
    else:
        assert -5 <= low < -1.5
        assert 1.5 < high < 500 or method == "mse"
    assert _observed(np.zeros((6, 3), np.float32), method) == (0, 0)


def test_percentile_leaves_out_so_many() -> None:
    x = np.random.default_rng(3).standard_normal((4000, 10)).astype(np.float32)
    low, high = _observed(x, "percentile", 98.0)
    share = np.mean((x >= low) & (x <= high))
    assert 0.978 < share < 0.985


def test_mse_is_the_least_of_all_ranges() -> None:
    """The range equals that of a search over the values themselves."""
    x = np.random.default_rng(4).standard_t(3, size=(2000, 5)).astype(np.float32)

    def error(low: float, high: float) -> float:
        scale, zero = scale_of(low, high, symmetric=False)
        steps = np.clip(np.rint(x / scale) + zero, -128, 127)
        return float(np.mean((x - (steps - zero) * scale) ** 2))

    low, high = _observed(x, "mse")
    least = min(error(x.min() * a, x.max() * b) for a in np.linspace(0.1, 1, 30) for b in np.linspace(0.1, 1, 30))
    assert error(low, high) <= 1.05 * least


def test_scales() -> None:
    for low, high in ((-3.0, 1.0), (0.0, 7.0), (-2.0, 0.0), (-1e-3, 5.0)):
        scale, zero = scale_of(low, high, symmetric=False)
        assert -128 <= zero <= 127
        assert (-128 - zero) * scale <= low + scale / 2 and (127 - zero) * scale >= high - scale / 2
    assert scale_of(-2, 1, symmetric=True) == (float(np.float32(2 / 127)), 0)
    assert scale_of(0, 0, symmetric=False)[0] == 1.0


def test_a_record_is_a_file(tmp_path: Path) -> None:
    record = rlx.calibrate(network(), batches(), params=weights(), device=None, method="entropy")
    path = tmp_path / "record.json"
    record.save(path)
    same = rlx.CalibrationRecord.load(path)
    assert (same.method, same.batches) == ("entropy", 3) and list(same.entries) == list(record.entries)
    for name, entry in record.entries.items():
        assert same.entries[name].range == entry.range
        np.testing.assert_array_equal(same.entries[name].low, entry.low)
    assert "w2" in str(same) and "3 batches" in str(same)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "no calibration record"),
        (lambda d: d.pop("entries"), "damaged"),
        (lambda d: d["entries"]["w"].update(low=[1.0]), "damaged"),
        (lambda d: d["entries"]["w"].update(range=[1.0, 2.0]), "damaged"),
        (lambda d: d["entries"]["w"].update(high=[float("nan")] * 2), "damaged|NaN"),
        (lambda d: d["entries"].update(w=3), "damaged"),
    ],
)
def test_damaged_records(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "record.json"
    rlx.calibrate(network(), batches(1), params=weights(), device=None).save(path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(rlx.Error, match=message):
        CalibrationRecord.load(path)


def _calibrated(data: Any, **options: Any) -> CalibrationRecord:
    return rlx.calibrate(network(), data, params=weights(), device=None, **options)


def test_wrong_data() -> None:
    good = batches(2)
    for data, message in (
        ([], "no batch"),
        ([good[0], {"x": good[1]["x"] * np.float32("nan")}], "batch 2: input 'x' holds NaN"),
        ([{"x": good[0]["x"][:, :1]}], r"batch 1: input 'x' must be .*got float32\[8, 1, 6, 6\]"),
        ([{"x": good[0]["x"].astype(np.float64)}], "batch 1: input 'x' must be"),
        ([{}], "batch 1: input 'x' .*is missing"),
        ([{"x": good[0]["x"][:0]}], "batch 1: input 'x' is empty"),
        ([good[0]["x"]], "batch 1 must be a mapping"),
        (
            [{"x": np.full((8, 2, 6, 6), 3e38, np.float32)}],
            "batch 1: what goes into the product with 'w2' holds NaN or inf",
        ),
    ):
        with pytest.raises(rlx.Error, match=message), np.errstate(all="ignore"):
            _calibrated(data)
    with pytest.raises(rlx.Error, match="method is one of"):
        _calibrated(good, method="median")
    with pytest.raises(rlx.Error, match="percentile must be"):
        _calibrated(good, percentile=10)
    with pytest.raises(rlx.Error, match="param 'b' is missing"):
        rlx.calibrate(network(), good, params={"w": weights()["w"]}, device=None)
    nothing = rlx.Graph("nothing")
    nothing.set_outputs([nothing.relu(nothing.input("x", (2,)))])
    with pytest.raises(rlx.Error, match="no product of activations with weights"):
        rlx.calibrate(nothing, good)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress() -> None:
    terminal, pipe = _Terminal(), io.StringIO()
    assert (
        list(progress([1, 2], "work", stream=terminal)) == list(progress(iter([1, 2]), "work", stream=pipe)) == [1, 2]
    )
    assert "1/2" in terminal.getvalue() and terminal.getvalue().endswith("\r\x1b[K")
    assert pipe.getvalue() == ""
