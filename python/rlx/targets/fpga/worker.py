"""The handler for `rlx.targets.worker` that runs CIRCT, which may not share a process with IREE's compiler.

Requests are ``{"kind": "generic"}``, ``{"kind": "verilog", "options": "…"}`` and ``{"kind": "simulation", "top": "…"}`` with a
module of the hw, comb and seq dialects as body. The reply's body is the module in the generic form, SystemVerilog, or LLVM IR
of a function `<top>_eval` that takes the state; then its header has the places of the ports in the state (``ports``: name to
offset) and its size (``bytes``).
"""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Callable
from typing import Any

_VERILOG = (
    "builtin.module(hw.module(lower-seq-hlmem,lower-seq-fifo,lower-seq-shiftreg),cse,canonicalize,cse,"
    "lower-seq-to-sv{disable-reg-randomization=true},canonicalize,cse,hw.module(hw-cleanup,prettify-verilog))"
)
# The passes of arcilator, in its order. The offsets of ports can be read after the last pass of the first group.
_TO_STATE = (
    "hw.module(lower-seq-hlmem,lower-seq-fifo,lower-seq-shiftreg,lower-seq-compreg-ce)",
    "lower-seq-firmem",
    "arc-strip-sv,arc-infer-memories,cse,arc-canonicalizer",
    "convert-to-arcs,arc-dedup,hw-flatten-modules,cse,arc-canonicalizer",
    "arc-split-loops,arc-dedup,cse,arc-canonicalizer",
    "arc-lower-state",
    "arc-inline,arc-merge-ifs,cse,arc-canonicalizer",
    "arc-lower-arcs-to-funcs",
    "arc.model(arc-allocate-state)",
)
_TO_LLVM = (
    "arc-lower-clocks-to-funcs",
    "arc-split-funcs",
    "cse,arc-canonicalizer",
    "lower-arc-to-llvm,cse,arc-canonicalizer",
)
_PORT = re.compile(r'arc\.root_(?:in|out)put "([^"]+)", %\w+ \{offset = (\d+)')
# Source locations of ports in the text of a design, which are not printed.
_PLACES = frozenset(("port_locs", "result_locs"))
_BYTES = re.compile(r"arc\.model @(\S+) .*storageBytes (\d+)")


def make(*_: str) -> Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]]:
    """Load CIRCT, and return the function that answers requests."""
    circt: Any = importlib.import_module("pycde.circt")
    ir: Any = importlib.import_module("pycde.circt.ir")
    passmanager: Any = importlib.import_module("pycde.circt.passmanager")

    def run(module: Any, pipeline: str) -> None:
        passmanager.PassManager.parse(pipeline).run(module.operation)

    def answer(header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        context = ir.Context()
        circt.register_dialects(context)
        output = io.StringIO()
        with context, ir.Location.unknown():
            try:
                module = ir.Module.parse(body.decode())
                if header["kind"] == "generic":
                    for op in module.body.operations:
                        for name in _PLACES.intersection(op.attributes):
                            del op.attributes[name]
                    return {"outcome": "ok"}, module.operation.get_asm(print_generic_op_form=True).encode()
                if header["kind"] == "verilog":
                    module.operation.attributes["circt.loweringOptions"] = ir.StringAttr.get(header["options"])
                    run(module, _VERILOG)
                    circt.export_verilog(module, output)
                    return {"outcome": "ok"}, output.getvalue().encode()
                for passes in _TO_STATE:
                    run(module, f"builtin.module({passes})")
                text = str(module)
                for passes in _TO_LLVM:
                    run(module, f"builtin.module({passes})")
                circt.export_llvm_ir(module, output)
            except ir.MLIRError as problem:
                return {"outcome": "failed", "message": str(problem)}, b""
        sizes = dict(_BYTES.findall(text))
        places = {"ports": {n: int(o) for n, o in _PORT.findall(text)}, "bytes": int(sizes[header["top"]])}
        return {"outcome": "ok", **places}, output.getvalue().encode()

    return answer
