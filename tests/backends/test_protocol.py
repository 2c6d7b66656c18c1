"""Every back end has all that the protocol says."""

from __future__ import annotations

import inspect

import pytest

from rlx.backends.iree import backend as iree
from rlx.backends.protocol import Backend, backends
from rlx.backends.xla import backend as xla

CHECKED: list[Backend] = [iree, xla]  # by the type checker


def test_these_are_all() -> None:
    assert backends() == CHECKED


@pytest.mark.parametrize("backend", CHECKED, ids=["iree", "xla"])
def test_functions_take_what_the_protocol_says(backend: Backend) -> None:
    functions = [name for name, value in vars(Backend).items() if inspect.isfunction(value) and name[0] != "_"]
    assert len(functions) >= 8
    for name in functions:
        declared = list(inspect.signature(getattr(Backend, name)).parameters)[1:]
        assert list(inspect.signature(getattr(backend, name)).parameters)[: len(declared)] == declared, name


def test_every_target_name_is_of_one_back_end() -> None:
    names = [name for backend in CHECKED for name in backend.target_names()]
    assert len(set(names)) == len(names)
    for backend in CHECKED:
        for name in backend.target_names():
            target = backend.target(name)
            assert target.name in backend.target_names()
            assert target.arch
