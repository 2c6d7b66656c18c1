"""Conversion of GGUF files: formats as llama.cpp chooses them, values, threads, and errors; and the command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx.cli.main import main
from rlx.llm.quantization.file_types import FILE_TYPES, find_file_type
from rlx.llm.quantization.importance import ImportanceMatrix
from rlx.llm.quantization.mixture import Mixture, ModelFacts
from rlx.llm.quantization.quantize import QuantizedFile, quantize
from rlx.schemes import SCHEMES
from rlx.weights import save_gguf

# The formats that llama.cpp (llama-cpp-python 0.3.36) chose for files of these models: for each kind of tensor that has
# another format than that of the type, the layers. Models with the same formats with an importance matrix are not repeated.
MIXTURES: dict[str, Any] = json.loads((Path(__file__).parent / "mixtures.json").read_text())
WIDTH, FF = 256, 512


def _shapes(
    layers: int,
    arch: str = "llama",
    tied: bool = False,
    experts: int = 0,
    kv: int = 4,
    width: int = 256,
    ff: int = 256,
    qkv: bool = False,
) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    """Return the shapes of the tensors of a model of `MIXTURES`, and its metadata."""
    heads = {"attn_q": width, "attn_k": 2 * kv, "attn_v": 2 * kv}
    rows = {"attn_qkv": 64} if qkv else heads
    layer: dict[str, tuple[int, ...]] = {name: (n, width) for name, n in (rows | {"attn_output": 32}).items()}
    if experts:
        layer |= {"ffn_gate_inp": (experts, width), "ffn_down_exps": (experts, 16, ff)}
        layer |= {f"ffn_{n}_exps": (experts, 16, width) for n in ("gate", "up")}
    else:
        layer |= {"ffn_gate": (16, width), "ffn_up": (16, width), "ffn_down": (16, ff)}
    layer |= {"attn_norm": (width,), "ffn_norm": (width,)}
    shapes: dict[str, tuple[int, ...]] = {"output_norm.weight": (width,), "token_embd.weight": (64, width)}
    if not tied:
        shapes["output.weight"] = (64, width)
    shapes |= {f"blk.{i}.{name}.weight": shape for i in reversed(range(layers)) for name, shape in layer.items()}
    values = {"block_count": layers, "attention.head_count": 4, "attention.head_count_kv": kv, "expert_count": experts}
    return shapes, {"general.architecture": arch} | {f"{arch}.{key}": value for key, value in values.items()}


def _layers(formats: str) -> dict[str, set[int]]:
    """Return the layers by format, from a text like `q4_k:0,3-5 q6_k:1-2`."""
    result: dict[str, set[int]] = {}
    for part in formats.split():
        name, _, listed = part.partition(":")
        ends = [span.split("-") for span in listed.split(",")] if listed else [["0", "999"]]
        result[name] = {i for span in ends for i in range(int(span[0]), int(span[-1]) + 1)}
    return result


@pytest.mark.parametrize("case", MIXTURES)
def test_formats_are_those_of_llama_cpp(case: str) -> None:
    """The order of the tensors does not matter."""
    shapes, metadata = _shapes(**MIXTURES[case]["model"])
    for name, expected in MIXTURES[case]["types"].items():
        type_name, _, importance = name.partition(" ")
        file_type = find_file_type(type_name)
        mixture = Mixture(ModelFacts.of(metadata), file_type, has_importance=bool(importance))
        chosen = mixture.choose(shapes)
        wanted: dict[str, str] = {}
        for tensor in chosen:
            match = re.fullmatch(r"(?:blk\.(\d+)\.)?(.*)\.weight", tensor)
            assert match is not None
            layers = _layers(expected.get(match[2], file_type.base.name))
            wanted[tensor] = next(format_ for format_, numbers in layers.items() if int(match[1] or 0) in numbers)
        assert {tensor: c.target.name for tensor, c in chosen.items()} == wanted, name


def test_type_names() -> None:
    assert find_file_type("q4_K_m").number == 15
    assert find_file_type("Q4_K").name == "Q4_K_M"
    assert {name: t.number for name, t in FILE_TYPES.items() if name in ("F32", "BF16", "IQ4_XS", "MXFP4_MOE")} == {
        **{"F32": 0, "BF16": 32, "IQ4_XS": 30, "MXFP4_MOE": 38}
    }
    for name, message in (
        ("Q4_K_N", "did you mean 'Q4_K_S'"),
        ("iq1_s", "are read only"),
        ("q8_k", "are read only"),
        ("int4_block64", "GGUF files have no format int4_block64"),
    ):
        with pytest.raises(rlx.Error, match=message):
            find_file_type(name)
    with pytest.raises(rlx.Error, match="no type of files is called 7"):
        find_file_type(7)


def _tensors(dtype: Any = np.float32) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = {"token_embd": (60, WIDTH), "output_norm": (WIDTH,), "output": (60, WIDTH)}
    for i in range(2):
        layer = {"attn_q": (WIDTH, WIDTH), "attn_k": (64, WIDTH), "attn_v": (64, WIDTH), "attn_output": (WIDTH, WIDTH)}
        layer |= {"ffn_gate": (FF, WIDTH), "ffn_up": (FF, WIDTH), "ffn_down": (WIDTH, FF), "attn_norm": (WIDTH,)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    result = {f"{name}.weight": rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    return result | {"blk.0.attn_q.bias": np.ones(WIDTH, np.float32), "ids.weight": np.ones((4, 32), np.int32)}


METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "näme",
    "general.file_type": 0,
    "llama.block_count": 2,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 1,
    "llama.rope.freq_base": 1e4,
    "tokenizer.ggml.tokens": ["a", "b"],
    "tokenizer.ggml.token_type": np.array([1, 3], np.int32),
    "tokenizer.ggml.add_bos_token": True,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "f16.gguf"
    save_gguf(path, _tensors(np.float16), METADATA)
    return path


def _converted(source: Path, out: Path, type_: str, **options: Any) -> tuple[QuantizedFile, rlx.weights.Weights]:
    remarks: list[str] = []
    result = quantize(source, out, type_, remark=remarks.append, **options)
    assert result.remarks == tuple(remarks)
    return result, rlx.weights.open(out)


def _error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(got - expected.astype(np.float32)) / np.linalg.norm(expected.astype(np.float32)))


# Relative errors of normally distributed numbers.
ERRORS = {"q4_k": 0.075, "q6_k": 0.019, "q8_0": 0.0055, "q2_k": 0.3, "q3_k": 0.15, "q5_k": 0.037, "iq4_xs": 0.08}
ERRORS |= {"f16": 0.0, "f32": 0.0, "bf16": 0.002, "q4_0": 0.09, "i32": 0.0, "mxfp4": 0.12, "nvfp4": 0.1}


@pytest.mark.parametrize("name", ["Q4_K_M", "Q2_K", "IQ4_XS", "Q8_0", "F16", "BF16", "F32", "MXFP4_MOE", "nvfp4"])
def test_values(source: Path, tmp_path: Path, name: str) -> None:
    """All tensors have small errors; norms, biases and integers none. The metadata stays, with another type of file."""
    result, weights = _converted(source, tmp_path / "out.gguf", name)
    assert [*weights] == [*_tensors()] == [*result.formats]
    for key, expected in _tensors(np.float16).items():
        kind = result.formats[key]
        assert weights[key].shape == expected.shape
        assert _error(weights[key].numpy(), expected) <= ERRORS[kind], key
        if expected.ndim == 1 or expected.dtype == np.int32:
            assert kind == {"float16": "f16", "float32": "f32", "int32": "i32"}[expected.dtype.name]
            assert np.array_equal(weights[key].numpy(), expected)
    own = dict(weights.metadata)
    assert (own.pop("general.file_type"), own.pop("general.quantization_version")) == (find_file_type(name).number, 2)
    assert own["tokenizer.ggml.token_type"].dtype == np.int32
    assert {k: v for k, v in own.items() if not k.startswith("tokenizer.ggml.to")} == {
        k: v for k, v in METADATA.items() if not k.startswith("tokenizer.ggml.to") and k != "general.file_type"
    }
    stored = sum(weight.nbytes for weight in weights.values())
    assert result.nbytes == stored < (tmp_path / "out.gguf").stat().st_size
    assert result.bits_per_weight == pytest.approx(8 * stored / sum(a.size for a in _tensors().values()))


def test_formats_of_a_file(source: Path, tmp_path: Path) -> None:
    result, weights = _converted(source, tmp_path / "out.gguf", "Q4_K_M")
    others = {n: f for n, f in result.formats.items() if n.startswith("blk.1.") or "." not in n.removesuffix(".weight")}
    assert others == {
        **{"token_embd.weight": "q4_k", "output_norm.weight": "f16", "output.weight": "q6_k", "ids.weight": "i32"},
        **{f"blk.1.{n}.weight": "q4_k" for n in ("attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up")},
        **{f"blk.1.{n}.weight": "q6_k" for n in ("attn_v", "ffn_down")},
        "blk.1.attn_norm.weight": "f16",
    }
    assert weights["output.weight"].encoding.name == "q6_k"


@pytest.mark.parametrize("name", ["Q4_K_M", "IQ4_NL"])
def test_the_bytes_do_not_depend_on_threads(source: Path, tmp_path: Path, name: str) -> None:
    importance = ImportanceMatrix({"blk.0.ffn_up.weight": np.arange(WIDTH, dtype=np.float32)[None] + 1}, "matrix")
    contents: set[bytes] = set()
    for threads in (1, 3):
        quantize(source, tmp_path / "out.gguf", name, threads=threads, imatrix=importance, remark=lambda line: None)
        contents.add((tmp_path / "out.gguf").read_bytes())
    assert len(contents) == 1


def test_slices_of_large_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.llm.quantization.packing._SLICE", 600)
    rng = np.random.default_rng(2)
    stack = rng.standard_normal((3, 5, 256)).astype(np.float32)
    factors = rng.random((3, 256)).astype(np.float32)
    save_gguf(tmp_path / "in.gguf", {"blk.0.ffn_up_exps.weight": stack}, {"general.architecture": "x"})
    importance = ImportanceMatrix({"blk.0.ffn_up_exps.weight": factors}, "matrix")
    _, weights = _converted(tmp_path / "in.gguf", tmp_path / "out.gguf", "q4_K_S", threads=2, imatrix=importance)
    encode = SCHEMES["q4_k"].encode
    assert encode is not None
    expected = np.concatenate([encode(matrix, own) for matrix, own in zip(stack, factors, strict=True)])
    assert np.array_equal(weights["blk.0.ffn_up_exps.weight"].stored(), expected.reshape(-1))


def test_importance_lowers_the_weighted_error(source: Path, tmp_path: Path) -> None:
    name, factors = "blk.0.ffn_up.weight", np.exp(np.random.default_rng(3).normal(0, 2, WIDTH)).astype(np.float32)
    expected = _tensors(np.float16)[name].astype(np.float32)
    errors: list[float] = []
    for matrix in (None, ImportanceMatrix({name: factors[None]}, "the matrix", ("texts",), 5)):
        result, weights = _converted(source, tmp_path / "out.gguf", "Q3_K_M", imatrix=matrix)
        errors.append(float((((weights[name].numpy() - expected) ** 2) * factors).sum()))
    assert errors[1] < 0.8 * errors[0]
    assert [line for line in result.remarks if "the matrix has no importance of 13 tensors" in line]
    assert {key: value for key, value in weights.metadata.items() if key.startswith("quantize.")} == {
        "quantize.imatrix.file": "the matrix",
        "quantize.imatrix.dataset": "texts",
        "quantize.imatrix.entries_count": 1,
        "quantize.imatrix.chunks_count": 5,
    }
    with pytest.raises(rlx.Error, match=r"has 4 numbers for 'blk\.0\.ffn_up\.weight', and the tensor has 256 columns"):
        quantize(
            source, tmp_path / "o", imatrix=ImportanceMatrix({name: np.ones((1, 4), np.float32)}, "m"), remark=print
        )
    with pytest.raises(rlx.Error, match=r"the format iq2_xxs of tensor '.*' needs an importance matrix"):
        quantize(source, tmp_path / "o", "IQ2_XXS")


def test_overrides(source: Path, tmp_path: Path) -> None:
    """The first pattern that is found in a name decides. Norms stay as they are."""
    overrides = {r"blk\.0\.ffn_(up|gate)": "Q8_0", "ffn": "q5_K", "output": "f16"}
    result, _ = _converted(source, tmp_path / "out.gguf", "Q4_K_M", overrides=overrides)
    formats = result.formats
    assert {formats[f"blk.0.ffn_{n}.weight"] for n in ("up", "gate")} == {"q8_0"}
    assert formats["blk.0.ffn_down.weight"] == formats["blk.1.ffn_up.weight"] == "q5_k"
    assert formats["output.weight"] == formats["blk.0.attn_output.weight"] == formats["output_norm.weight"] == "f16"
    result, _ = _converted(source, tmp_path / "out.gguf", "Q4_K_M", pure=True, overrides={"token_embd": "q6_k"})
    assert {*result.formats.values()} == {"q4_k", "q6_k", "f16", "f32", "i32"}
    assert [n for n, f in result.formats.items() if f == "q6_k"] == ["token_embd.weight"]
    for wrong, message in (
        ({"ffn_donw": "q6_k"}, "the pattern 'ffn_donw' matches no tensor that is quantised"),
        ({"_norm": "q6_k"}, "matches no tensor"),
        ({"(": "q6_k"}, "is not a valid regular expression"),
        ({"ffn": "q7_k"}, "no format of tensors is called 'q7_k'"),
        ({"ffn": "iq1_m"}, "RLX cannot quantise to it"),
        ({"": "q6_k"}, "a regular expression for each format"),
        (["ffn"], "overrides must be a mapping"),
    ):
        with pytest.raises(rlx.Error, match=re.escape(message)):
            quantize(source, tmp_path / "no.gguf", overrides=wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "no.gguf").exists()


def test_fallbacks_are_reported(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    tensors = {
        "blk.0.ffn_up.weight": rng.standard_normal((8, 96)).astype(np.float32),
        "blk.0.ffn_down.weight": rng.standard_normal((8, 40)).astype(ml_dtypes.bfloat16),
    }
    save_gguf(tmp_path / "in.gguf", tensors, METADATA)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = quantize(tmp_path / "in.gguf", tmp_path / "out.gguf", "Q4_K_S")
    assert [str(w.message) for w in caught] == [*result.remarks]
    assert caught[0].filename == __file__
    assert dict(result.formats) == {"blk.0.ffn_up.weight": "q5_0", "blk.0.ffn_down.weight": "f16"}
    assert result.remarks[1].startswith("1 of 2 tensors becomes q5_0 instead of q4_k: rows of 96 elements")


def test_packed_sources(source: Path, tmp_path: Path) -> None:
    """A second conversion is from the decoded numbers, and a conversion to the same format copies."""
    quantize(source, tmp_path / "q8.gguf", "Q8_0")
    first = rlx.weights.open(tmp_path / "q8.gguf")
    result, weights = _converted(tmp_path / "q8.gguf", tmp_path / "q4.gguf", "Q4_0", pure=True)
    assert "16 tensors are packed already, and rounded a second time" in result.remarks[0]
    encode = SCHEMES["q4_0"].encode
    assert encode is not None
    name = "blk.1.ffn_up.weight"
    assert np.array_equal(weights[name].stored(), encode(first[name].numpy()).reshape(-1))
    result, weights = _converted(tmp_path / "q8.gguf", tmp_path / "copy.gguf", "Q8_0")
    assert (tmp_path / "copy.gguf").read_bytes() == (tmp_path / "q8.gguf").read_bytes()
    assert result.remarks == ()


def test_other_sources(tmp_path: Path) -> None:
    """Files in parts, and big-endian files, give the same file."""
    cases: list[dict[str, Any]] = [{"alignment": 64}, {"split": 200_000}, {"byteorder": "big"}]
    contents: set[bytes] = set()
    for options in cases:
        (path, *others) = save_gguf(tmp_path / "in.gguf", _tensors(), METADATA, **options)
        assert bool(others) == ("split" in options)
        for name in ("Q5_K_M", "F32"):
            quantize(path, tmp_path / f"{name}.gguf", name)
        contents.add((tmp_path / "Q5_K_M.gguf").read_bytes() + (tmp_path / "F32.gguf").read_bytes())
        if others:
            with pytest.raises(rlx.Error, match="is also an input"):
                quantize(path, others[0])
    assert len(contents) == 1


@pytest.mark.parametrize(("value", "type_", "message"), [
    (np.nan, "Q4_K_M", "cannot convert tensor 'blk.0.ffn_up.weight' of .*: q4_k stores finite numbers"),
    (1e30, "F16", "it has numbers that are too large for f16"),
])  # fmt: skip
def test_numbers_that_a_format_lacks(tmp_path: Path, value: float, type_: str, message: str) -> None:
    array = np.zeros((4, 256), np.float32)
    array[1, 2] = value
    save_gguf(tmp_path / "in.gguf", {"blk.0.ffn_up.weight": array}, METADATA)
    with pytest.raises(rlx.Error, match=message):
        quantize(tmp_path / "in.gguf", tmp_path / "out.gguf", type_)
    assert [path.name for path in tmp_path.iterdir()] == ["in.gguf"]


def test_files_that_cannot_be_written(source: Path, tmp_path: Path) -> None:
    before = source.read_bytes()
    (tmp_path / "link.gguf").symlink_to(source)
    os.link(source, tmp_path / "hard.gguf")
    for out in (source, tmp_path / "link.gguf", tmp_path / "hard.gguf"):
        with pytest.raises(rlx.Error, match="is also an input"):
            quantize(source, out)
    assert source.read_bytes() == before
    with pytest.raises(rlx.Error, match="cannot write"):
        quantize(source, tmp_path / "nothing" / "out.gguf")
    with pytest.raises(rlx.Error, match="cannot write"):
        quantize(source, tmp_path)
    if os.path.exists("/dev/full"):
        with pytest.raises(rlx.Error, match="cannot write /dev/full: No space left on device"):
            quantize(source, "/dev/full", "F16")
    for threads in (0, 2.0, "2", True):
        with pytest.raises(rlx.Error, match="threads must be an integer"):
            quantize(source, tmp_path / "out.gguf", threads=threads)  # type: ignore[arg-type]


def test_sources_that_are_no_models(tmp_path: Path) -> None:
    save_gguf(tmp_path / "in.gguf", {}, {})
    np.savez(tmp_path / "in.npz", a=np.zeros(3))
    for name, message in (
        ("in.gguf", "is not a language model"),
        ("in.npz", "is not a language model"),
        ("none", "no such file"),
    ):
        with pytest.raises(rlx.Error, match=message):
            quantize(tmp_path / name, tmp_path / "out.gguf")


def test_progress(source: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    quantize(source, tmp_path / "out.gguf", "Q8_0", progress=lambda *call: calls.append(call))
    count = len(_tensors())
    assert [call[:2] for call in calls] == [(i + 1, count) for i in range(count)]
    assert {call[2] for call in calls} == {*_tensors()}

    def stop(done: int, total: int, name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(source, tmp_path / "stopped.gguf", "Q8_0", progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]


def test_the_command(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.gguf"
    given = ["quantize", str(source), "-o", str(out)]
    assert (
        main([*given, "--type", "q5_k_m", "--tensor-type", "ffn_down=q8_0", "--tensor-type", "ffn=f16", "-t", "2"]) == 0
    )
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"[21/21] {[*_tensors()][-1]}" not in printed.err.splitlines()[0]
    assert f"{out}: 21 tensors, " in printed.err.splitlines()[-1]
    weights = rlx.weights.open(out)
    assert [weights[f"blk.0.{n}.weight"].encoding.name for n in ("ffn_down", "attn_k")] == ["q8_0", "q5_k"]
    assert weights["blk.0.ffn_up.weight"].dtype == np.float16
    assert main(given) == 0
    assert rlx.weights.open(out).metadata["general.file_type"] == 15
    before = out.read_bytes()
    for options, message in (
        (["--bits=4"], "--bits goes with a graph, and .* is a language model"),
        (["--weights=int4"], "--weights goes with a graph"),
        (["--integer-only"], "--integer-only goes with a graph"),
        (["--keep=a"], "--keep goes with a graph"),
        (["--tensor-type=ffn"], "expected PATTERN=FORMAT"),
        (["--type=Q9"], "no type of files is called 'Q9'"),
        (["--imatrix=none.dat"], "no such file: none.dat"),
        (["-t0"], "threads must be an integer from 1"),
    ):
        assert main([*given, *options]) == 1
        assert re.search(message, capsys.readouterr().err), options
    save_gguf(
        tmp_path / "m.gguf", _IMPORTANCE, {"imatrix.datasets": [], "imatrix.chunk_count": 1, "imatrix.chunk_size": 1}
    )
    assert main([*given, "--imatrix", str(out)]) == 1
    assert main([*given[:-1], str(tmp_path / "m.gguf"), "--imatrix", str(tmp_path / "m.gguf")]) == 1
    assert "m.gguf is also an input" in capsys.readouterr().err
    assert main(["quantize", str(source), "-o", "-"]) == 1
    assert main(["quantize", str(source), "-o", str(source)]) == 1
    (tmp_path / "graph.mlir").write_text("module {}")
    assert main(["quantize", str(tmp_path / "graph.mlir"), "-o", str(out), "--pure"]) == 1
    assert "--pure goes with a language model, and" in capsys.readouterr().err
    assert out.read_bytes() == before


_IMPORTANCE = {f"blk.0.ffn_up.weight.{part}": np.ones(n, np.float32) for part, n in (("in_sum2", WIDTH), ("counts", 1))}


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_interrupts(tmp_path: Path) -> None:
    """Ctrl-C leaves no file, and the exit code is that of an interrupted program."""
    rng = np.random.default_rng(5)
    names = [f"blk.{i}.ffn_up.weight" for i in range(4)]
    array = rng.standard_normal((2048, 1024)).astype(np.float32)
    save_gguf(tmp_path / "in.gguf", dict.fromkeys(names, array), METADATA)
    paths = os.pathsep.join([str(Path(rlx.__file__).parents[1]), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-m", "rlx.cli.main", "quantize", "in.gguf", "-o", "out.gguf", "--type", "Q2_K", "-t", "2"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    while process.poll() is None and len([*tmp_path.iterdir()]) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b""), err
    assert [path.name for path in tmp_path.iterdir()] == ["in.gguf"]


def test_mixtures_cover_the_types() -> None:
    tested = {name.partition(" ")[0] for case in MIXTURES.values() for name in case["types"]}
    assert tested == {*FILE_TYPES} - {"F32", "F16", "BF16", "NVFP4"}
    assert isinstance(FILE_TYPES, Mapping)
