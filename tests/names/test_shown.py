"""The text of objects with hostile names in prompts, terminals and notebooks."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest

import rlx
from rlx.cli.common import CliDiagnostic as Printed
from rlx.cli.common import FilePosition
from rlx.ir.graph.listing import inspect_graph
from rlx.ir.graph.listing_diff import inspect_diff
from rlx.ir.op import views
from rlx.report.comparison import ComparisonReport
from rlx.report.compile_report import CompileReport
from rlx.report.graph_svg import drawing
from rlx.report.profile import ProfileReport
from rlx.report.roofline import MachineLimits
from rlx.report.tuning import TuningReport, TuningTrial
from rlx.runtime.jax import programs as jax_programs
from rlx.support import errors
from rlx.targets.fpga.lower.recognise import network_of
from rlx.targets.iree.compiler import IreeDiagnostic
from rlx.targets.options import CompileOptions
from rlx.targets.protocol import KernelEvent, Measurement
from rlx.targets.registry import BackendProblem
from rlx.train.confusion import ConfusionMatrix
from rlx.train.layout import compile_training
from rlx.train.learning_rates import LearningRateSearch
from rlx.train.trained_model import TrainedModel
from rlx.train.training_history import TrainingHistory
from tests.llm.tiny_model import write_model
from tests.names import readers
from tests.names.hostile import IMPOSSIBLE, KINDS, LONG, NAMES, added, graph_of, is_harmless

PACKAGE = Path(rlx.__file__).parent
MACHINE = MachineLimits(1e11, 1e10)
# Classes whose text has no names of a graph or a file, or is not for readers, with the reason.
_CODE = "text for a compiler, which tests/names/test_programs.py reads"
_CLOSED = "no names but those of RLX"
_PYTHON = "names of the user's own Python code"
_PARSED = "text that is parsed again, whose names are identifiers or the user's own words"
_GENERATED = "text that a model generated, which str() gives as it is"
OTHERS = {
    **dict.fromkeys(
        ["targets.c.lower.writer:Writer", "targets.c.lower.values:Affine", "targets.fpga.lower.hdl:HdlModule"], _CODE
    ),
    **dict.fromkeys(
        [
            *(
                "kernels.buffer:Buffer",
                "kernels.choice:KernelChoice",
                "kernels.values:Value",
                "llm.tokenizer.template_sandbox:TemplateNamespace",
                "schemes.registry:SchemeTable",
                "targets.artifacts.entry:StoredProgram",
                "targets.iree.abi:TensorType",
                "targets.iree.cpu:Cpu",
                "sparse.array:SparseArray",
                "targets.private:UnsafeFolder",
            ),
            *(
                "targets.registry:Registered",
                "dialect.spec:_Required",
                "ir.dtype:DType",
                "ir.graph.eager:EagerTensor",
                "tick:Tick",
            ),
            *("targets.fpga.lower.layer:StreamLayer", "passes.fusion.cost:Estimate", "passes.instruments:Statistics"),
            *("passes.instruments:Timing", "report.roofline:MachineLimits", "runtime.session:Session"),
            "passes.simplification.algebra:AlgebraicIdentity",
            *(
                f"passes.simplification.expressions:{c}"
                for c in ("AnyNumber", "Application", "Limit", "Literal", "Variable")
            ),
        ],
        _CLOSED,
    ),
    **dict.fromkeys(
        [
            *(
                "nn.module:Module",
                "nn.parameter:Parameter",
                "ops.signatures:SignatureAnnotation",
                "runtime.jax.function:JaxFunction",
            ),
            *(
                "runtime.jit:Jit",
                "runtime.model:_ArgumentAnnotation",
                "runtime.model:Model",
                "models.embedder:SentenceEmbedder",
            ),
        ],
        _PYTHON,
    ),
    **dict.fromkeys(
        [
            *(
                "targets.dispatch:KernelDispatchPolicy",
                "ir.dims.bounds:Bound",
                "ir.dims.expr:OpaqueTerm",
                "ir.dims.expr:DimExpr",
            ),
            *("ir.shape:Shape", "ir.sharding:Mesh", "passes.base:Option", "passes.base:Pass", "passes.base:PassInfo"),
            *("passes.pipeline:OptionText", "passes.pipeline:PipelineElement", "passes.pipeline:PassPipeline"),
        ],
        _PARSED,
    ),
    **dict.fromkeys(["llm.completion:Chunk", "llm.completion:Completion"], _GENERATED),
    "targets.artifacts.buckets:Buckets": "names of symbols, which are identifiers",
    "cli.common:FilePosition": "a part of a diagnostic, which is printed as a whole",
}


def classes() -> Iterator[str]:
    """Yield all classes that define their own `repr` or `str`."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
                if isinstance(node, ast.ClassDef)
                else set()
            )
            if names & {"__repr__", "__str__"}:
                module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
                yield f"{module}:{node.name}"  # type: ignore[union-attr]


# All characters that a terminal or a page could interpret, in one name.
HOSTILE = "".join(name for name in NAMES if name != LONG)[:2000]
PLAIN = "n" * len(HOSTILE)  # the layout of drawings depends on lengths


@cache
def made(name: str) -> list[Any]:
    """Return an object of every kind that shows names, with one name everywhere."""
    return [*graphs(name), *reports(name), *trainings(name), *parts(name)]


def network(name: str) -> Any:
    g: Any = rlx.Graph(name)
    x, w, state = g.input(name, (2, 4)), g.param(f"w{name}", (4, 4)), g.state(f"s{name}", (2, 4))
    with g.named(name):
        y = added(g.relu(x @ w), state, name)
    g.update(state, y)
    g.set_outputs({name: g.sum(y)})
    return g


def graphs(name: str) -> list[Any]:
    """Return graphs, their parts and compiled programs."""
    g, weights = network(name), {f"w{name}": np.ones((4, 4), np.float32)}
    x = g.input(f"t{name}", (2,))
    (op,) = (op for op in g.function.entry_block.operations if op.operation.name == "rlx.activation")
    open_graph: Any = rlx.Graph(name)
    y = open_graph.input(name, ("n", 4))
    open_graph.set_outputs({name: y @ open_graph.param(f"w{name}", (4, 4))})
    bucketed = rlx.Session("c").compile(open_graph, params=weights, buckets={"n": [2, 4]})
    on_xla = rlx.Session("xla").compile(open_graph, params=weights, bind={"n": 2})
    programs = rlx.Session("xla").compile({name: network(name), "other": network(name)}, params=weights)
    stored = rlx.weights.Weights.of(weights)
    jax_graph = open_graph.to_jax()
    steps = [
        rlx.train.TrainStep(network(name), rlx.train.SGD(0.1), wrt=[f"w{name}"], params=weights, device="xla"),
        rlx.train.JaxStep(network(name), rlx.train.SGD(0.1), wrt=[f"w{name}"]),
    ]
    hardware = network_of(rlx.Pipeline("fpga").compile(graph_of([name, "b"], "g", kinds=("input",), dtype="i8")).lir)
    return [
        *(
            g,
            x,
            views.Activation(op.operation),
            rlx.GraphModule.define(name, lambda b: b.set_outputs(b.input(name, (2,)))),
            *g.arguments,
            *g.results,
        ),
        *(rlx.Session("c").compile(network(name), params=weights), bucketed, on_xla, programs, programs[name]),
        *(
            on_xla.run_device({name: np.ones((2, 4), np.float32)})[0],
            jax_graph,
            jax_programs.Given(open_graph, CompileOptions()),
            *steps,
        ),
        *(stored, *stored.values(), *hardware.inputs.values()),
        *language_models(name),
    ]


def language_models(name: str) -> list[Any]:
    """Return a language model and its tokenizer, of a file whose name and metadata have a name."""
    with TemporaryDirectory() as folder:
        # File systems take at most 255 bytes of a name, and no slashes.
        path = Path(folder) / f"{name.replace('/', '').replace(chr(0), '')[:50]}.gguf"
        template: Any = {"tokenizer.chat_template": name}
        model = rlx.llm.load(write_model(path, **template))
        return [model, model.tokenizer]


def reports(name: str) -> list[Any]:
    """Return reports on a compilation, on training, tuning and quantisation."""
    result = rlx.Pipeline("c").compile(network(name))
    page = CompileReport(result, MACHINE)
    lir = inspect_graph(result.lir)
    events = [KernelEvent(name, (i,), False, 0, float(i), 1e-6 * (i + 1)) for i in range(len(lir.ops))]
    profile = ProfileReport(result.hir.name, "cpu", Measurement("local-sync", 1, 1, 1.0, tuple(events)), lir, MACHINE)
    diff = inspect_diff(inspect_graph(result.hir), lir)
    both = ComparisonReport((name, f"{name}2"), page, page)
    training = compile_training(network(name), [f"w{name}"])
    trials = (
        TuningTrial("as given", "kept", 1.0, 1.0),
        TuningTrial(name, "failed", note=name),
        TuningTrial(name, "measured", 1.0, 0.5),
    )
    return [
        *(result, result.fusion, result.dispatch, result.memory, page.history, both, lir, *lir.ops, diff, *diff.lines),
        *(profile, training, training.weights, *trials, TuningReport(name, name, 1.0, 1.0, trials), *rounded(name)),
    ]


def rounded(name: str) -> list[Any]:
    """Return the reports of quantisation to integers."""
    g: Any = rlx.Graph(name)
    g.set_outputs({name: g.input(name, (2, 4)) @ g.param(f"w{name}", (4, 4))})
    params, data = {f"w{name}": np.eye(4, dtype=np.float32)}, [{name: np.ones((2, 4), np.float32)}]
    options: Any = {"params": params, "device": None, "progress": False}
    record = rlx.calibrate(g, data, **options)
    ranges = rlx.observe_ranges(g, data, **options)
    return [
        *(record, rlx.quantization_sensitivity(g, record, data, **options)),
        rlx.search_bits(g, ranges, data, max_bytes=10_000, **options),
    ]


def trainings(name: str) -> list[Any]:
    """Return the results of a training."""
    history = TrainingHistory([{"epoch": n, "step": n, name: 0.5 / n, f"val_{name}": 0.25 / n} for n in (1, 2)])
    model: Any = rlx.nn.Linear(2, 2)
    trained = TrainedModel(model, cast(Any, None), rlx.Session("xla"), history, 1)
    search = LearningRateSearch([0.1, 0.2], [1.0, 0.5])
    return [history, trained, ConfusionMatrix(np.array([[3, 0], [1, 2]]), [name, "b"]), search]


def parts(name: str) -> list[Any]:
    """Return messages."""
    kinds = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.Error)]
    return [
        *(
            BackendProblem(name, name),
            IreeDiagnostic("error", name, name),
            Printed("error", name, FilePosition(name, 1, 1)),
        ),
        *(kind(name, location=name, hint=name) for kind in kinds),
    ]


def test_every_class_with_a_text_of_its_own_is_known() -> None:
    """A new class is created by one of the functions above, or has a reason in `OTHERS`."""
    shown = {f"{c.__module__.removeprefix('rlx.')}:{c.__name__}" for thing in made("a") for c in type(thing).__mro__}
    found = set(classes())
    assert found - shown - OTHERS.keys() == set()
    assert OTHERS.keys() <= found


@pytest.mark.parametrize("show", [repr, str])
def test_names_are_shown_as_escapes_and_make_no_lines(show: Callable[[Any], str]) -> None:
    for hostile, benign in zip(made(HOSTILE), made(PLAIN), strict=True):
        if isinstance(hostile, (rlx.Error, Printed, BackendProblem, IreeDiagnostic)) and show is str:
            assert is_harmless(str(hostile))
            continue  # messages have lines
        assert is_harmless(show(hostile), keep="\n"), type(hostile)
        assert show(hostile).count("\n") == show(benign).count("\n"), type(hostile)


def pages(thing: Any) -> Iterator[tuple[str, str, str]]:
    """Yield all texts of an object for browsers: the language, the method and the text."""
    for method in ("_repr_html_", "html", "html_body", "_repr_svg_", "svg", "trace_text"):
        give = getattr(thing, method, None)
        if callable(give) and not isinstance(thing, type) and (text := give()) is not None:
            language = "json" if "trace" in method else "svg" if "svg" in method else "html"
            yield language, f"{type(thing).__name__}.{method}", str(text)


PAGE = re.compile(r"_repr_\w+_|(to_)?(html|svg|latex|markdown|trace)(_body|_text)?")


def methods() -> set[str]:
    """Return the methods of RLX that return text for browsers."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for f in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(f, ast.FunctionDef) and PAGE.fullmatch(f.name):
                    found.add(f"{node.name}.{f.name}")  # type: ignore[union-attr]
    return found


def test_pages_and_drawings_have_the_structure_of_those_with_plain_names() -> None:
    readers_of = {"html": readers.html, "svg": readers.svg, "json": readers.as_json}
    seen: set[str] = set()
    things = [with_page(name) for name in (HOSTILE, PLAIN)]
    for hostile, benign in zip(*things, strict=True):
        for (language, method, text), (_, _, plain) in zip(pages(hostile), pages(benign), strict=True):
            seen.add(method)
            assert is_harmless(text), method
            assert readers_of[language](text) == readers_of[language](plain), method
    listing = inspect_graph(network(LONG))
    assert all(float(e.get("width", 0)) < 5000 for e in ElementTree.fromstring(drawing(listing)).iter())
    assert methods() - seen <= {"ProfileReport.trace"}  # a dictionary
    assert "Program._repr_html_" in seen


def with_page(name: str) -> list[Any]:
    page = CompileReport(rlx.Pipeline("cpu").compile(network(name)), MACHINE)
    return [*made(name), page]


def test_text_of_graphs_is_read_as_written() -> None:
    for turn in range(3):
        graph = graph_of(NAMES[turn::3], NAMES[turn], turn)
        text = graph.text(locations=True)
        again = rlx.parse(text)
        assert is_harmless(text) and again.text(locations=True) == text
        assert again.arguments == graph.arguments and again.results == graph.results
        assert [op.location for op in inspect_graph(again).ops] == [op.location for op in inspect_graph(graph).ops]


MODULE = """module attributes {rlx.stage = "mir"} {
  func.func @"NAME0"(%a: tensor<2xf32> {rlx.kind = "input", rlx.name = "NAME1"}) -> (tensor<2xf32> {rlx.name = "NAME2"}) {
    return %a : tensor<2xf32>
  }
}"""


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_is_no_name_is_an_error_that_names_the_line(name: str) -> None:
    g: Any = rlx.Graph("g")
    x = g.input("x", (2,))
    calls: list[Callable[[], Any]] = [
        lambda: rlx.Graph(name),
        *(lambda kind=kind: getattr(g, kind)(name, (2,)) for kind in KINDS),
        lambda: g.set_outputs({name: x + 1}),
        lambda: g.named(name).__enter__(),
        lambda: g.input("y", (name,)),
    ]
    for call in calls:
        with pytest.raises(rlx.Error, match=r"test_shown\.py:"):
            call()
    text = "".join(f"\\{b:02X}" for b in name.encode(errors="surrogatepass"))
    for place in range(3):
        names = ["f", "x", "y"]
        names[place] = text
        module = MODULE.replace("NAME0", names[0]).replace("NAME1", names[1]).replace("NAME2", names[2])
        with pytest.raises(rlx.Error, match=r"<text>:2:\d+: "):
            rlx.parse(module)


def test_models_of_onnx_may_have_any_names() -> None:
    onnx = pytest.importorskip("onnx")
    h = onnx.helper

    def model(names: Sequence[str]) -> bytes:
        values = [h.make_tensor_value_info(f"{kind}{n}", 1, [2]) for n in names for kind in "xy"]
        weights = [h.make_tensor(n, 1, [2], [1.0, 2.0]) for n in names]
        nodes = [h.make_node("Add", [f"x{n}", n], [f"y{n}"], name=n) for n in names]
        return h.make_model(h.make_graph(nodes, names[0], values[::2], values[1::2], weights)).SerializeToString()

    names = NAMES[::4]
    graph = rlx.from_onnx(model(names))
    assert {a.name for a in graph.params} == set(names)
    assert is_harmless(graph.text(locations=True)) and is_harmless(repr(graph), keep="")
    with pytest.raises(rlx.Error, match="<bytes>: an argument's name"):
        rlx.from_onnx(model(["a\0b"]))
