"""The module of a program that calls LAPACK, for IREE's compiler."""

from __future__ import annotations

import platform
import re
from typing import Any

import pytest

import rlx
from rlx.targets.compilation import Compilation
from rlx.targets.iree.backend import module_text
from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.targets import target

_ASSEMBLY = r'%\S+ = "llvm\.inline_asm"\((%\S+), (%\S+)\) <\{.*?\}> : \(i64, i64\) -> !llvm\.struct<\(i64, i64\)>'
_CALL = (
    r'%pointer = "llvm.inttoptr"(\2) : (i64) -> !llvm.ptr'
    "\n"
    r'"llvm.call"(%pointer, \1) <{op_bundle_sizes = array<i32>, operandSegmentSizes = array<i32: 2, 0>}>'
    " : (!llvm.ptr, i64) -> ()"
)


def lapack_call() -> str:
    """Return a module in which a call of a pointer replaces the call in assembly. With the assembly it compiles."""
    if platform.machine() != "x86_64":
        pytest.skip("LAPACK is called on x86-64 only")
    graph: Any = rlx.Graph("main")
    graph.set_outputs(list(graph.lu(graph.input("a", (8, 8)))))
    text = module_text(Compilation(graph, target("cpu"), in_session=True).lowered())
    called, count = re.subn(_ASSEMBLY, _CALL, text)
    assert count == 1
    compile_module(text, target("cpu"), timeout_s=60)
    return called
