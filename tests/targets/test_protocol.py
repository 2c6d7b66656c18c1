"""Every back end implements the protocol."""

from __future__ import annotations

import inspect

import pytest

import rlx
from rlx.targets.c import backend as c
from rlx.targets.evaluator import backend as evaluator
from rlx.targets.fpga import backend as fpga
from rlx.targets.iree import backend as iree
from rlx.targets.iree import program as iree_program
from rlx.targets.protocol import Compiler, Runtime
from rlx.targets.registry import RLX, Registered, backend_of, backends, runtime_of
from rlx.targets.tpu import backend as tpu
from rlx.targets.xla import backend as xla

COMPILERS: list[Compiler] = [iree, xla, tpu, c, fpga, evaluator]  # checked by the type checker
RUNTIMES: list[Runtime | None] = [iree_program, xla, None, c, fpga, evaluator]
BACKENDS = [backend for backend in backends() if backend.origin == RLX]  # others may be installed as well


def ids(backend: Registered) -> str:
    return backend.name


def test_these_are_all() -> None:
    assert [backend.compiler for backend in BACKENDS] == COMPILERS
    assert [backend.runtime for backend in BACKENDS] == RUNTIMES


@pytest.mark.parametrize("backend", BACKENDS, ids=ids)
@pytest.mark.parametrize("protocol", [Compiler, Runtime])
def test_functions_take_what_the_protocol_says(backend: Registered, protocol: type) -> None:
    if protocol is Runtime and backend.runtime is None:
        assert not backend.devices  # it only compiles
        return
    functions = [name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"]
    assert len(functions) >= 3
    for name in functions:
        declared = list(inspect.signature(getattr(protocol, name)).parameters)[1:]
        part = backend.compiler if protocol is Compiler else backend.runtime
        assert list(inspect.signature(getattr(part, name)).parameters)[: len(declared)] == declared, name


def test_every_target_name_is_of_one_back_end() -> None:
    names = [name for backend in BACKENDS for name in backend.targets]
    assert len(set(names)) == len(names)
    for backend in BACKENDS:
        assert set(backend.devices) <= set(backend.targets)
        for name in backend.targets:
            target = backend.compiler.target(name)
            assert target.name in backend.targets
            assert target.arch
            assert backend_of(name) is backend


def test_devices_are_those_of_the_back_ends() -> None:
    names = [name for backend in BACKENDS for name in backend.devices]
    assert [device.value for device in rlx.Device] == names
    for name in names:
        assert runtime_of(name) is backend_of(name).runtime
        assert rlx.Device.of(name) is rlx.Device(name) is getattr(rlx.Device, name.upper().replace("-", "_"))


def test_what_nothing_runs() -> None:
    message = "nothing here runs programs for target 'stablehlo', which is a kind of file"
    with pytest.raises(rlx.Error, match=message) as caught:
        rlx.Session("stablehlo")
    assert "rlx compile --target=stablehlo" in str(caught.value)
    g = rlx.Graph()
    g.set_outputs([g.input("x", (2,)) + 1])
    artifact = rlx.Pipeline("stablehlo").compile(g).artifact()
    with pytest.raises(rlx.Error, match=message):
        rlx.Program(artifact).run({"x": [1, 2]})
