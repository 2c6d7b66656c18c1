"""Compiled programs for the tests of executables."""

from __future__ import annotations

import numpy as np
import pytest

from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.executable import IreeExecutable
from rlx.targets.iree.targets import target
from tests.targets.iree.executable_programs import BIG, MEMORY, MODEL, dtype_functions, random


@pytest.fixture(scope="module")
def model() -> bytes:
    return compile_module(MODEL, target("cpu")).vmfb


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return {"layer.w": random(16, 8), "big": random(*BIG)}


@pytest.fixture(scope="module")
def memory_vmfb() -> bytes:
    return compile_module(MEMORY, target("cpu")).vmfb


@pytest.fixture(scope="module", params=["local-sync", "local-task"])
def memory(request: pytest.FixtureRequest, memory_vmfb: bytes) -> IreeExecutable:
    return IreeExecutable(memory_vmfb, driver=request.param, threads=2)


@pytest.fixture(scope="module")
def dtypes() -> IreeExecutable:
    return IreeExecutable(compile_module(dtype_functions(), target("cpu")).vmfb)
