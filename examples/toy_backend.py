"""A complete back end in a separate package: the target `toy`, whose programs are JSON that NumPy runs.

The package's `pyproject.toml` names the module; `rlx compile --target=toy` and `rlx.Session("toy")` then work:

    [project.entry-points."rlx.backends"]
    toy = "toy_backend"

It claims a dozen ops on f32 and bool. RLX decomposes all others into these, or rejects them with the user's lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import rlx
from rlx.ir.location import describe
from rlx.ir.op import opview
from rlx.passes.check_lir import CheckLir
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.compilation import Compilation
from rlx.targets.protocol import Compiled, DeviceInfo
from rlx.targets.stages import to_lir

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    **{kind: getattr(np, kind) for kind in ("abs", "cos", "exp", "log", "sin", "sqrt", "tan", "tanh")},
    **{"neg": np.negative, "relu": lambda x: np.maximum(x, 0)},
    **{"rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x))},
}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power}
BINARY |= {"max": np.maximum, "min": np.minimum}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}
COMPARE |= {"gt": np.greater, "ge": np.greater_equal}

# The evaluation of each op: a function of the arrays of its operands, with the attributes by name.
RULES: dict[str, Callable[..., Any]] = {
    "activation": lambda x, kind: ACTIVATIONS[kind](x),
    "binary": lambda lhs, rhs, kind: BINARY[kind](lhs, rhs),
    "cast": lambda x, dtype: x.astype(rlx.dtype(dtype).numpy),
    "compare": lambda lhs, rhs, kind: COMPARE[kind](lhs, rhs),
    "concat": lambda lhs, rhs, axis: np.concatenate([lhs, rhs], axis),
    "constant": lambda value: np.array(value["elements"], rlx.dtype(value["dtype"]).numpy).reshape(value["shape"]),
    "expand": lambda x, shape: np.broadcast_to(x, shape),
    "matmul": np.matmul,
    "reduce": lambda x, kind, axes, keep_dims: getattr(np, kind)(x, axis=tuple(axes), keepdims=keep_dims),
    "reshape": lambda x, shape: x.reshape(shape),
    "transpose": lambda x, perm: x.transpose(perm),
    "where": np.where,
}


class Target:
    """The only target."""

    name, arch, fusions, costs, alternatives = "toy", "numpy", (), None, ()
    lacks = ("f16", "bf16", "f64", "c64", "i8", "i16", "i32", "i64", "u8", "u32")
    pipeline = to_lir(CheckLir(ops=tuple(RULES), unsupported_dtypes=lacks, target=name))

    def lowering(self, level: int) -> str:
        return ""  # the compiler reads LIR

    def fingerprint(self) -> str:
        return ""  # the target has no flags


def target_names() -> tuple[str, ...]:
    return ("toy",)


def target(name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
    if arch not in (None, "numpy") or extra_flags:
        raise rlx.CompileError("the target toy has no architectures but numpy, and no flags")
    return Target()


def version() -> str:
    return "1"


def compile_program(compilation: Compilation, timeout_s: float | None = None) -> Compiled:
    lir = compilation.lir
    if lir.symbols:
        raise rlx.UnsupportedError("toy programs have static sizes", hint="bind symbols: --bind=n=128, bind={'n': 128}")
    numbers: dict[Any, int] = {v: i for i, v in enumerate(lir.function.entry_block.arguments)}
    *body, end = (op.operation for op in lir.function.entry_block.operations)
    steps = []
    for op in body:
        attributes = {name: plain(value) for name, value in opview.attributes_of(op).items()}
        if op.name == "rlx.activation" and attributes["kind"] not in ACTIVATIONS:
            raise rlx.UnsupportedError(f"toy has no {attributes['kind']}", location=describe(op.location))
        steps.append([opview.name_of(op), [numbers[v] for v in op.operands], attributes])
        numbers[op.results[0]] = len(numbers)
    results = [[numbers[v], result.updates] for v, result in zip(end.operands, lir.results, strict=True)]
    return Compiled(json.dumps({"steps": steps, "results": results}).encode())


def plain(value: Any) -> Any:
    """Return an attribute as a JSON value."""
    if isinstance(value, np.ndarray):
        return {"dtype": rlx.dtype(value.dtype).name, "shape": value.shape, "elements": value.ravel().tolist()}
    return value.name if isinstance(value, rlx.DType) else value


def info_fields() -> dict[str, Any]:
    return {}


def emit(kind: str, compilation: Compilation) -> str | None:
    return compile_program(compilation).program.decode() if kind == "json" else None


def notes(artifact: Artifact) -> list[str]:
    return [f"{len(json.loads(artifact.program)['steps'])} steps"]


class ToyProgram:
    """A loaded program with its weights and states."""

    def __init__(self, artifact: Artifact, parameters: Mapping[str, np.ndarray]):
        self.code = json.loads(artifact.program)
        self.arguments = artifact.signature.arguments
        states = artifact.signature.of_kind("state")
        self.values = {s.name: np.full(s.shape.static, s.init, s.shape.dtype.numpy) for s in states} | dict(parameters)

    def call(self, arrays: Sequence[np.ndarray], /) -> list[np.ndarray]:
        inputs = iter(arrays)
        values = [next(inputs) if a.kind == "input" else self.values[a.name] for a in self.arguments]
        for op, operands, attributes in self.code["steps"]:
            values.append(RULES[op](*[values[i] for i in operands], **attributes))
        results = [(np.array(values[i]), state) for i, state in self.code["results"]]
        self.values |= {state: value for value, state in results if state is not None}
        return [value for value, state in results if state is None]

    def read_state(self, name: str) -> np.ndarray:
        return self.values[name].copy()

    def write_state(self, name: str, value: np.ndarray) -> None:
        self.values[name] = np.array(value)


device_names = target_names  # programs run on this machine


def load(artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None) -> ToyProgram:
    return ToyProgram(artifact, parameters)


def devices() -> list[DeviceInfo]:
    return [DeviceInfo("toy", "toy", f"NumPy {np.__version__}", available=True)]
