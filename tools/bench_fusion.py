"""The effect of each fusion on a target: time with it over time without it.

    python -m tools.bench_fusion [--target=cpu] [--only=swiglu] [--rounds=9]
    python -m tools.bench_fusion --costs

Prints a table in the format of docs/performance.md. Both programs alternate in one process on one core. A ratio is the
median of processor times over the rounds. Results are compared first. If a target gets the same program in both cases,
nothing is timed. For fusions with a cost model, the table also has its prediction (`rlx/passes/fusion/cost.py`);
`--costs` measures its parameters for a target.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tools.bench_common import in_turns, median_ms, median_ratio, worker

_SECONDS = 0.15  # seconds of a turn
CLEAN = "rlx-simplify,rlx-constant-fold,canonicalize,cse"


@dataclass(frozen=True)
class Workload:
    """A graph with a pattern for one fusion.

    Attributes:
        name: The pass, without `rlx-fuse-` or `rlx-`.
        sizes: The sizes, for readers.
        build: Returns the outputs.
        before: Passes that create the pattern. They run in both programs.
    """

    name: str
    sizes: str
    build: Callable[[Any], Any]
    before: str = CLEAN

    @property
    def fusion(self) -> str:
        """The name of the pass."""
        return f"rlx-{self.name}" if self.name.startswith("recognize") else f"rlx-fuse-{self.name}"


def _x(g: Any, *dims: int) -> Any:
    return g.input(f"x{len(g.arguments)}", dims)


def _w(g: Any, *dims: int) -> Any:
    return g.param(f"w{len(g.arguments)}", dims)


def _dense(g: Any, x: Any, width: int) -> Any:
    return x @ _w(g, x.shape.dims[-1], width) + _w(g, width)


def _swiglu(rows: int) -> Callable[[Any], Any]:
    def build(g: Any) -> Any:
        x = _x(g, rows, 1024)
        return g.silu(x @ _w(g, 1024, 2816)) * (x @ _w(g, 1024, 2816))

    return build


def _halves(g: Any) -> Any:
    x = _x(g, 128, 5632)
    return g.narrow(x, 1, 2816, 2816) * g.silu(g.narrow(x, 1, 0, 2816))


def _shared(rows: int, width: int) -> Callable[[Any], Any]:
    def build(g: Any) -> Any:
        x = _x(g, rows, width)
        return [_dense(g, x, width) for _ in range(3)]

    return build


def _residual_norm(g: Any) -> Any:
    x, y = _x(g, 512, 768), _x(g, 512, 768)
    return g.layer_norm(x + _w(g, 768) + y, _w(g, 768), _w(g, 768))


def _residual_rms(g: Any) -> Any:
    x, y = _x(g, 512, 1024), _x(g, 512, 1024)
    return g.rms_norm(x + y, _w(g, 1024))


def _rms_reshape(g: Any) -> Any:
    return g.reshape(g.rms_norm(_x(g, 4, 128, 1024), _w(g, 1024)), (512, 1024)) @ _w(g, 1024, 1024)


def _conv(g: Any) -> Any:
    return g.relu(g.conv(_x(g, 1, 64, 56, 56), _w(g, 64, 64, 3, 3), padding=1) + _w(g, 64, 1, 1))


def _modulated(g: Any) -> Any:
    import numpy as np

    x = _x(g, 4, 256, 384)
    normal = g.layer_norm(x, np.ones(384, np.float32), np.zeros(384, np.float32))
    return normal * (_x(g, 4, 1, 384) + 1.0) + _x(g, 4, 1, 384)


def _gated(g: Any) -> Any:
    return _x(g, 4, 256, 384) + _x(g, 4, 1, 384) * _x(g, 4, 256, 384)


def _encoder(g: Any) -> Any:
    x, keep = _x(g, 1, 128, 384), _x(g, 1, 128)
    q, k, v = (_dense(g, x, 384) for _ in range(3))
    attended = _dense(g, g.attention(q, k, v, keep, num_heads=12, head_dim=32, mask_kind="custom"), 384)
    h = g.layer_norm(attended + x, _w(g, 384), _w(g, 384))
    return g.layer_norm(_dense(g, g.gelu(_dense(g, h, 1536)), 384) + h, _w(g, 384), _w(g, 384))


def _chain(g: Any) -> Any:
    x, y = _x(g, 512, 1024), _x(g, 512, 1024)
    h = g.tanh(x + y) * g.sigmoid(x)
    return [h, g.sum(g.exp(h - y) * x, -1)]


def _softmax(g: Any) -> Any:
    x = _x(g, 1536, 128)
    e = g.exp(x - g.max(x, -1, keep_dims=True))
    return e / g.sum(e, -1, keep_dims=True)


def _norm(g: Any) -> Any:
    x = _x(g, 512, 768)
    y = x - g.mean(x, -1, keep_dims=True)
    return y / g.sqrt(g.mean(y * y, -1, keep_dims=True) + 1e-5) * _w(g, 768) + _w(g, 768)


def _gelu(g: Any) -> Any:
    x = _x(g, 512, 3072)
    return 0.5 * x * (1.0 + g.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


def _attention(causal: bool) -> Callable[[Any], Any]:
    def build(g: Any) -> Any:
        q, k, v = (_x(g, 1, 512, 12, 64) for _ in range(3))
        q, k, v = (g.transpose(t, (0, 2, 1, 3)) for t in (q, k, v))
        scores = (q @ g.transpose(k, (0, 1, 3, 2))) / 8.0
        if causal:
            scores = g.where(g.iota((512, 512), axis=0) >= g.iota((512, 512), axis=1), scores, -math.inf)
        return g.transpose(g.softmax(scores) @ v, (0, 2, 1, 3))

    return build


def _residual_product(g: Any) -> Any:
    x = _x(g, 128, 768)
    return _dense(g, x, 768) + x


_BIASED = f"{CLEAN},rlx-fuse-matmul-bias-act"
_JOINED = f"{_BIASED},rlx-fuse-residual-layer-norm,rlx-fuse-shared-input-matmul"
WORKLOADS = (
    Workload("matmul-bias-act", "128×768·768×3072, gelu", lambda g: g.gelu(_dense(g, _x(g, 128, 768), 3072))),
    Workload("conv-bias-act", "64 channels of 56², 3×3, relu", _conv),
    Workload("matmul-residual", "128×768·768×768", _residual_product, _BIASED),
    Workload("residual-layer-norm", "512×768", _residual_norm),
    Workload("residual-rms-norm", "512×1024", _residual_rms),
    Workload("rms-norm-reshape", "4×128×1024, then ·1024×1024", _rms_reshape),
    Workload("ada-layer-norm", "4×256×384", _modulated),
    Workload("gated-residual", "4×256×384", _gated),
    Workload("swiglu", "128×5632", _halves),
    Workload("swiglu-dual-matmul", "128 rows, 1024 to 2816", _swiglu(128)),
    Workload("swiglu-dual-matmul", "1 row, 1024 to 2816", _swiglu(1)),
    Workload("shared-input-matmul", "128 rows, three of 768×768", _shared(128, 768), _BIASED),
    Workload("shared-input-matmul", "16 rows, three of 384×384", _shared(16, 384), _BIASED),
    Workload("shared-input-matmul", "1 row, three of 768×768", _shared(1, 768), _BIASED),
    Workload("shared-input-matmul", "256 rows, three of 64×64", _shared(256, 64), _BIASED),
    Workload("shared-input-matmul", "an encoder layer, 1×128×384", _encoder, _BIASED),
    Workload("attention-block", "1×128×384, 12 heads", _encoder, _JOINED),
    Workload("transformer-layer", "1×128×384, 12 heads", _encoder, f"{_JOINED},rlx-fuse-attention-block"),
    Workload("elementwise-regions", "512×1024, 6 ops and a sum", _chain),
    Workload("recognize-activations", "gelu by tanh, 512×3072", _gelu),
    Workload("recognize-softmax", "1536×128", _softmax),
    Workload("recognize-norms", "layer norm, 512×768", _norm),
    Workload("recognize-attention", "1×512, 12 heads of 64", _attention(False), CLEAN),
    Workload("recognize-attention", "the same, causal", _attention(True), CLEAN),
)


def compare(index: int, target: str, rounds: int) -> str:
    """Return one row of the table."""
    import numpy as np

    import rlx

    workload = WORKLOADS[index]
    g: Any = rlx.Graph("workload")
    g.set_outputs(workload.build(g))
    passes = (workload.before, f"{workload.before},{workload.fusion}")
    if str(rlx.passes.run(g, passes[0])) == str(rlx.passes.run(g, passes[1])):
        raise AssertionError(f"{workload.name} finds nothing in its workload")
    row = f"| `{workload.name}` | {workload.sizes} |"
    # Not at level 0, because its code differs from the default.
    options = [{"passes": text, "policy": "fusable", "opt": 1} for text in passes]
    lir = [str(rlx.Pipeline(target=target, **o).compile(g).lir) for o in options]
    if lir[0] == lir[1]:
        return f"{row} | | same program | |"
    rng = np.random.default_rng(0)
    values = {a.name: rng.normal(size=a.shape.static, scale=0.2).astype(a.shape.dtype.numpy) for a in g.arguments}
    params = {a.name: values[a.name] for a in g.arguments if a.kind == "param"}
    inputs = {a.name: values[a.name] for a in g.inputs}
    programs = [rlx.Session(target).compile(g, params=params, **o) for o in options]
    for a, b in zip(*(p.run(inputs) for p in programs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    without, with_it = in_turns([lambda p=p: p.run(inputs) for p in programs], _SECONDS, rounds)
    ratio = median_ratio(with_it, without)
    return (
        f"{row} {median_ms(without):.3g} | {median_ms(with_it):.3g} | {ratio:.2f} | {_predicted(workload, g, target)} |"
    )


def _predicted(workload: Workload, graph: Any, target: str) -> str:
    """Return the ratio of times that the cost model predicts for the changed ops; empty without a cost model."""
    import rlx
    from rlx.passes.fusion.base import matches
    from rlx.passes.fusion.fuse import FUSIONS
    from rlx.targets.registry import target_of

    fusion, costs = FUSIONS.get(workload.name), target_of(target).costs
    if fusion is None or not fusion.weighed or costs is None:
        return ""
    found = [said for _, _, said in matches(rlx.passes.run(graph, workload.before).module, [fusion], costs) if said]
    before, after = (sum(w.seconds for w in works) for works in zip(*((e.before, e.after) for e in found), strict=True))
    return f"{after / before:.2f}{', made' if all(e.pays for e in found) else ''}"


def measured_costs(target: str, rounds: int) -> str:
    """Return the parameters of a target: products of 128×768·768×768, a sum of 4 MiB each, and a chain of tiny products."""
    import numpy as np

    import rlx

    def seconds(build: Callable[[Any], Any]) -> float:
        g: Any = rlx.Graph("costs")
        g.set_outputs([build(g)])
        values = {a.name: np.full(a.shape.static, 0.01, np.float32) for a in g.arguments}
        params = {a.name: values[a.name] for a in g.params}
        program = rlx.Session(target).compile(g, params=params, opt=1)
        inputs = {a.name: values[a.name] for a in g.inputs}
        (times,) = in_turns([lambda: program.run(inputs)], _SECONDS, rounds)
        return median_ms(times) / 1e3

    def chain(length: int) -> Callable[[Any], Any]:
        def build(g: Any) -> Any:
            h = _x(g, 1, 16)
            for _ in range(length):
                h = h @ _w(g, 16, 16)
            return h

        return build

    product = seconds(lambda g: _x(g, 128, 768) @ _w(g, 768, 768))
    moved = seconds(lambda g: _x(g, 1024, 1024) + _w(g, 1024, 1024))
    kernel = (seconds(chain(42)) - seconds(chain(2))) / 40
    flops, rate = 2 * 128 * 768 * 768 / product, 3 * 1024 * 1024 * 4 / moved
    return f"{target}: Costs(flops={flops:.2g}, bytes={rate:.2g}, kernel_s={kernel:.2g})"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", help="cpu or xla (default: both)")
    parser.add_argument("--only", action="append", help="a fusion; can be given several times")
    parser.add_argument("--rounds", type=int, default=9, help="the number of turns per program (default: %(default)s)")
    parser.add_argument(
        "--costs", action="store_true", help="only measure the parameters of the cost model on the targets"
    )
    arguments = parser.parse_args()
    for target in arguments.target or ("cpu", "xla"):
        with worker() as process:
            if arguments.costs:
                print(process.submit(measured_costs, target, arguments.rounds).result(), flush=True)
                continue
            heads = ("fusion", "workload", "without, ms", "with, ms", "ratio", "predicted")
            print(f"\n{target}\n\n| {' | '.join(heads)} |\n{'|---' * len(heads)}|", flush=True)
            for index, workload in enumerate(WORKLOADS):
                if not arguments.only or workload.name in arguments.only:
                    print(process.submit(compare, index, target, arguments.rounds).result(), flush=True)


if __name__ == "__main__":
    main()
