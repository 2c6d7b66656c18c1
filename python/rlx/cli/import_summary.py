"""`summary_of`: the format of a file or folder, what an import takes of it, and what it leaves open or rejects."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx.ir.graph.graph import Graph
    from rlx.weights import Weight

_PROTOBUF = b"\x08"  # the tag of the first field of an ONNX model
_ZIP = b"PK\x03\x04"
_ONNX = "python -m tf2onnx.convert"
_MLIR = re.compile(
    rb'^\s*(?:func\.func\b|func\s+@|module(?:\s*\{|\s+@|\s+attributes\b)|"builtin\.module"|"func\.func")', re.MULTILINE
)
_MLIR_ENDINGS = (".mlir", ".mlirbc", ".rlxa")
_SEARCHED = 1 << 16  # bytes at the start of a file in which a module begins
FORMATS = (
    "ONNX (.onnx)",
    "StableHLO and MLIR of RLX (text or bytecode)",
    "programs of torch.export (.pt2)",
    "GGUF",
    "safetensors",
    "folders of the Hugging Face hub",
    "compiled programs of RLX (.rlxa)",
)


@dataclass
class ImportSummary:
    """The result of trying to import a file.

    Attributes:
        file: The file or folder.
        format: The name of its format.
        details: Properties that the format has: versions, family, head.
        is_imported: Whether it was imported.
        inputs: Name, dtype and sizes of each input. An open size is a string.
        outputs: The same for outputs.
        weights: The number of tensors by dtype.
        weight_bytes: Their size.
        ops: The number of ops of each kind in the graph.
        open_sizes: The names of sizes that are open, as `--bind` takes them.
        constants: Inputs of few integers or bools, which can be constants, and their dtypes.
        unused: The names of tensors that the graph does not use.
        problem: The message of the error, if it was not imported.
        hint: Its hint.
        call: The call that loads it in Python.
    """

    file: str
    format: str
    details: dict[str, str] = field(default_factory=dict)
    is_imported: bool = False
    inputs: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)
    weight_bytes: int = 0
    ops: dict[str, int] = field(default_factory=dict)
    open_sizes: list[str] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    problem: str | None = None
    hint: str | None = None
    call: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the summary as values of JSON."""
        return asdict(self)

    def set_graph(self, graph: Graph) -> None:
        """Record a graph that was imported."""
        from rlx.ir.graph.listing import inspect_graph

        self.is_imported = True
        self.inputs = [_tensor(a.name, a.shape) for a in graph.inputs]
        self.outputs = [_tensor(o.name, o.shape) for o in graph.outputs]
        self.ops = dict(inspect_graph(graph).histogram.most_common())
        if not self.weights:
            self.set_weights(graph.weights)

    def set_weights(self, weights: Mapping[str, Weight]) -> None:
        """Record the tensors."""
        values = [w for w in weights.values() if hasattr(w, "nbytes")]
        self.weights = dict(Counter(_dtype(w) for w in values).most_common())
        self.weight_bytes = sum(w.nbytes for w in values)

    def refuse(self, problem: str, hint: str | None) -> None:
        """Record that it cannot be imported."""
        self.problem, self.hint = problem, hint


def summary_of(path: str, bind: Sequence[str] = (), function: str | None = None) -> ImportSummary:
    """Return the summary of a file or folder. An import that fails is part of it.

    Args:
        path: The file or folder.
        bind: The values of `--bind`.
        function: The function of a module of MLIR.

    Raises:
        Error: The file cannot be read, or a value of `bind` is not written as it should be.
    """
    from rlx.weights.mapped import content_of

    if os.path.isdir(path):
        return _folder(path)
    content = content_of(path)
    start = bytes(content[:64])
    refusal = _refusal(path, start, content)
    if refusal is not None:
        return refusal
    if path.endswith((".pt2", ".ep")):
        return _exported_program(path)
    if path.endswith(".onnx") or start[:1] == _PROTOBUF:
        return _onnx_model(path, content, bind)
    if start[:4] == b"GGUF":
        return _model(path, "GGUF")
    if _is_weights(path):
        return _weights(path)
    return _program(path, bind, function, looks_like_program=_looks_like_program(path, start, content))


def _looks_like_program(path: str, start: bytes, content: Any) -> bool:
    """Return whether a file may be a module of MLIR or a compiled program, so that the error of its reader is of use."""
    from rlx.ir.text.isolated import is_bytecode

    named = path.endswith(_MLIR_ENDINGS)
    return named or is_bytecode(start[:4]) or start[:4] == _ZIP or _MLIR.search(content[:_SEARCHED]) is not None


def _refusal(path: str, start: bytes, content: Any) -> ImportSummary | None:
    """Return the summary of a file whose format has no importer; None for other files."""
    if start[4:8] == b"TFL3":
        return _refused(path, "TensorFlow Lite", "there is no importer", f"{_ONNX} --tflite {path} --output model.onnx")
    if start[:4] == b"\x89HDF" or path.endswith(".keras"):
        hint = 'keras.saving.load_model(path).export("model.onnx", format="onnx")'
        return _refused(path, "Keras", "there is no importer", hint)
    is_zip_of_torch = start[:4] == _ZIP and content.find(b"/data.pkl", 0, 4096) > 0
    if path.endswith((".pt", ".pth", ".ckpt")) or is_zip_of_torch or start[:2] == b"\x80\x02":
        hint = "export the module where its class is known: rlx.from_torch(module, arguments), or torch.export.save"
        return _refused(
            path, "PyTorch pickle", "it has tensors and names of classes, and no program; pickles are not read", hint
        )
    return None


def _refused(path: str, kind: str, problem: str, hint: str) -> ImportSummary:
    return ImportSummary(path, kind, problem=problem, hint=hint)


def _tensor(name: str, shape: Any) -> dict[str, Any]:
    sizes = [d if type(d) is int else str(d) for d in shape.dims]
    return {"name": name, "dtype": str(shape.dtype), "shape": sizes}


def _dtype(weight: Any) -> str:
    """Return the dtype of a tensor as files store it: of packed blocks, the format."""
    from rlx.ir.dtype import dtype as rlx_dtype
    from rlx.weights.encoding import Plain

    encoding = getattr(weight, "encoding", None)
    if encoding is not None and not isinstance(encoding, Plain):
        return str(encoding.name)
    return str(rlx_dtype(weight.dtype))


def _attempt(summary: ImportSummary, load: Callable[[], Any]) -> Any:
    """Return the result of an import; None if it fails, which the summary records."""
    from rlx.support.errors import Error

    try:
        return load()
    except Error as problem:
        place = f"{problem.location}: " if problem.location and problem.location != summary.file else ""
        summary.refuse(f"{place}{problem.message}", problem.hint)
        return None


def _onnx_model(path: str, content: Any, bind: Sequence[str]) -> ImportSummary:
    from rlx.cli.files import read_graph
    from rlx.importers.onnx.model import message_of

    summary = ImportSummary(path, "ONNX")
    message = _attempt(summary, lambda: message_of(content, path))
    if message is None:
        return summary
    summary.details = {(o.domain or "op set"): str(o.version) for o in message.opset_import}
    if message.producer_name:
        summary.details["producer"] = f"{message.producer_name} {message.producer_version}".strip()
    summary.details["nodes"] = str(len(message.graph.node))
    _attempt(summary, lambda: _declared(summary, message, {text.rpartition("=")[0]: text for text in bind}))
    values = list(bind)
    graph = _attempt(summary, lambda: read_graph(path, bind=values))
    if graph is not None:
        summary.set_graph(graph)
    return summary


def _declared(summary: ImportSummary, message: Any, bound: Mapping[str, str]) -> None:
    """Record the inputs of an ONNX model as it declares them, with its open sizes and possible constants."""
    from rlx.importers.onnx.inputs import OpenSizes, described_inputs, integer_inputs, split_bound
    from rlx.importers.onnx.reading import OnnxModel
    from rlx.ir.dtype import dtype as rlx_dtype
    from rlx.support.packages import import_package

    model = OnnxModel(import_package("onnx", "rlx import"), message, summary.file, None)
    sizes, stored = OpenSizes(model, {}), {t.name for t in message.graph.initializer}
    for declared in message.graph.input:
        kind = declared.type.tensor_type
        if declared.name in stored or not kind.HasField("shape"):
            continue
        dims = [sizes.size(d, f"{declared.name}_dim{axis}") for axis, d in enumerate(kind.shape.dim)]
        dtype = str(rlx_dtype(model.dtype(kind.elem_type, f"input '{declared.name}'")))
        shape = [d if type(d) is int else str(d) for d in dims]
        summary.inputs.append({"name": declared.name, "dtype": dtype, "shape": shape})
    possible = described_inputs(integer_inputs(model))
    summary.open_sizes = [name for name in sizes.open if name not in bound]
    summary.constants = {name: dtype for name, dtype in possible.items() if name not in bound}
    texts = {name: text[len(name) + 1 :] for name, text in bound.items()}
    given = split_bound(model, {name: int(text) if text.isdecimal() else text for name, text in texts.items()})
    options = "".join(
        f", {kind}={values}" for kind, values in zip(("sizes", "constants"), given, strict=True) if values
    )
    summary.call = f"rlx.from_onnx({summary.file!r}{options})"


def _program(path: str, bind: Sequence[str], function: str | None, *, looks_like_program: bool) -> ImportSummary:
    """Return the summary of a module of MLIR, or of a compiled program.

    Args:
        path: The file.
        bind: The values of `--bind`.
        function: The function of the module.
        looks_like_program: Whether the file may be a module. The format of other files is unknown.
    """
    from rlx.cli.files import read_program
    from rlx.ir.graph.graph import Graph

    summary = ImportSummary(path, "MLIR")
    program = _attempt(summary, lambda: read_program(path, function, bind=list(bind)))
    if isinstance(program, Graph):
        summary.details = {"function": program.name, "stage of the graph": program.stage}
        summary.set_graph(program)
        summary.open_sizes = sorted(map(str, program.symbols))
        summary.call = f"rlx.from_stablehlo({path!r}), or rlx.load({path!r}) for a module of RLX"
    elif program is not None:
        summary.format, summary.is_imported = "compiled programs of RLX", True
        summary.details = {"functions": ", ".join(program.names)}
        summary.call = f"rlx.load({path!r})"
    elif not looks_like_program and summary.hint is None:  # files of JAX have a hint
        empty = os.path.getsize(path) == 0
        problem = "the file is empty" if empty else "the format of the file is not known"
        return _refused(path, "unknown format", problem, f"known formats: {', '.join(FORMATS)}")
    return summary


def _exported_program(path: str) -> ImportSummary:
    """Return the summary of a file of `torch.export.save`."""
    from rlx.importers.torch.model import from_torch
    from rlx.support.errors import Error
    from rlx.support.packages import import_package

    summary = ImportSummary(path, "PyTorch exported program", call=f"rlx.from_torch(torch.export.load({path!r}))")

    def load() -> Any:
        export = import_package("torch.export", "rlx import")
        try:
            program = export.load(path)
        except Exception as problem:
            raise Error(f"torch.export.load cannot read {path}: {type(problem).__name__}: {problem!s:.300}") from None
        return from_torch(program)

    graph = _attempt(summary, load)
    if graph is not None:
        summary.set_graph(graph)
        summary.open_sizes = sorted(map(str, graph.symbols))
    return summary


def _is_weights(path: str) -> bool:
    from rlx.weights.formats import holds_weights

    return holds_weights(path)


def _weights(path: str) -> ImportSummary:
    """Return the summary of a file of tensors."""
    from rlx.weights import open as open_weights

    folder = os.path.dirname(os.path.abspath(path))
    if path.endswith((".safetensors", ".json")) and os.path.isfile(os.path.join(folder, "config.json")):
        return _folder(folder)
    summary = ImportSummary(path, "tensors", call=f"rlx.weights.open({path!r})")
    weights = _attempt(summary, lambda: open_weights(path))
    if weights is not None:
        summary.set_weights(weights)
        hint = "put it into a folder with the config.json of the model: rlx.models.load(folder)"
        summary.refuse("the file has tensors, but no program", hint)
    return summary


def _folder(path: str) -> ImportSummary:
    if os.path.isfile(os.path.join(path, "saved_model.pb")):
        hint = f"{_ONNX} --saved-model {path} --output model.onnx"
        return _refused(path, "TensorFlow SavedModel", "there is no importer", hint)
    if not os.path.isfile(os.path.join(path, "config.json")):
        problem = "the folder has no config.json"
        return _refused(path, "folder", problem, "give a file, or a folder of the Hugging Face hub")
    return _model(path, "Hugging Face folder")


def _model(path: str, kind: str) -> ImportSummary:
    """Return the summary of a model that `rlx.models.load` reads."""
    import warnings

    from rlx.models import load

    summary = ImportSummary(path, kind, call=f"rlx.models.load({path!r})")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = _attempt(summary, lambda: load(path))
    if model is None:
        return summary
    summary.details = {"family": model.model_type, "head": model.head or "none (base model)"}
    if remarks := [str(w.message) for w in caught if issubclass(w.category, UserWarning)]:
        summary.details["warning"] = "; ".join(remarks)
    if model.family.encoder is not None:
        summary.details["graphs"] = "encoder_graph, and graph, which is the decoder"
    if model.id2label:
        summary.details["labels"] = ", ".join(list(model.id2label.values())[:8]) + (
            " …" if len(model.id2label) > 8 else ""
        )
    summary.details["sizes of graphs"] = ", ".join(f"{n}={v}" for n, v in model.sizes.items())
    summary.set_weights(model.weights)
    summary.unused = list(model.unused)
    symbols: dict[str, Any] = {name: name for name in ("batch", "sequence", "encoder_sequence") if name in model.sizes}
    graph = _attempt(summary, lambda: model.graph(**symbols))
    if graph is None:  # positions that depend on the length
        graph = _attempt(summary, lambda: model.graph(**dict.fromkeys(symbols, 1)))
    if graph is not None:
        summary.problem = summary.hint = None
        summary.set_graph(graph)
        summary.open_sizes = sorted(map(str, graph.symbols))
    return summary
