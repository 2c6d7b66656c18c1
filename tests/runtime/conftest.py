"""Programs for several tests, each compiled once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx


@pytest.fixture(scope="session")
def session() -> Any:
    return rlx.Session(rlx.Device.CPU, threads=1)


@pytest.fixture(scope="session")
def linear_graph() -> Any:
    g = rlx.Graph("linear")
    x = g.input("x", (2, 3))
    g.set_outputs({"y": g.matmul(x, g.param("w", (3, 4))), "same": x})
    return g


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "x": generator.standard_normal((2, 3)).astype(np.float32),
        "w": generator.standard_normal((3, 4)).astype(np.float32),
    }
