"""`rlx run`."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import rlx
from rlx.cli.values import flag_for, named_arrays, save_array
from rlx.ir.dtype import DTYPES
from tests.cli.calling import HELLO, Command, W, X

Y = "y: f32[1, 2]\n[[4. 6.]]\n"


def test_a_graph(command: Command, hello: Path) -> None:
    assert command.output("run", hello, f"--input={X}", f"--param={W}") == Y


def test_arguments_without_a_name(command: Command, hello: Path) -> None:
    hello.write_text(HELLO.replace(', rlx.name = "x"', ""))
    message = command.error("run", hello, "--evaluate", f"--input={X}", f"--param={W}")
    assert "there is no input 'x'; the program has arg0" in message and '{rlx.name = "x"}' in message
    assert command.output("run", hello, "--evaluate", f"--input=arg0{X[1:]}", f"--param={W}") == Y


def test_an_artifact(command: Command, hello_artifact: Path) -> None:
    assert command.output("run", hello_artifact, f"--input={X}", f"--param={W}") == Y
    assert command.output("run", hello_artifact, f"--input={X}", f"--param={W}", "--device=CPU") == Y


def test_xla(command: Command, hello: Path, tmp_path: Path) -> None:
    assert command.output("run", hello, "--device=xla", f"--input={X}", f"--param={W}") == Y
    command.output("compile", hello, "--target=xla", "-o", tmp_path / "hello.rlxa")
    assert command.output("run", tmp_path / "hello.rlxa", f"--input={X}", f"--param={W}") == Y
    assert "is compiled for xla, not for cpu" in command.error("run", tmp_path / "hello.rlxa", "--device=cpu")


def test_the_evaluator(command: Command, hello: Path) -> None:
    assert command.output("run", hello, "--evaluate", f"--input={X}", f"--param={W}") == Y


def test_standard_input(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(HELLO.encode())))
    assert command.output("run", "-", "--evaluate", f"--input={X}", f"--param={W}") == Y


def test_arrays_from_files(command: Command, hello_artifact: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3, 4]], np.float32))
    save_file({"w": np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32)}, tmp_path / "w.safetensors")
    call = [
        "run",
        hello_artifact,
        f"--input=x=@{tmp_path / 'x.npy'}",
        f"--params={tmp_path / 'w.safetensors'}",
    ]
    assert command.output(*call) == Y
    # A separate parameter overrides that of the file.
    assert "[[10.  0.]]" in command.output(*call, "--param=w=4x2xf32=1,0,1,0,1,0,1,0")


def test_repeat_says_how_long_a_run_takes(command: Command, hello_artifact: Path) -> None:
    out = command.output("run", hello_artifact, f"--input={X}", f"--param={W}", "--repeat=20")
    line, rest = out.split("\n", 1)
    times = re.fullmatch(r"20 runs: median ([\d.e-]+) ms, fastest ([\d.e-]+) ms, slowest ([\d.e+-]+) ms", line)
    assert times is not None
    middle, least, most = map(float, times.groups())
    assert 0 < least <= middle <= most
    assert rest == Y


def test_outputs_are_saved(command: Command, hello_artifact: Path, tmp_path: Path) -> None:
    names = [tmp_path / "first.npy", tmp_path / "new" / "second.npy"]
    options = [f"--save={names[0]}", f"--save=y={names[1]}", f"--output-dir={tmp_path / 'all'}"]
    command.output("run", hello_artifact, f"--input={X}", f"--param={W}", *options)
    for path in (*names, tmp_path / "all" / "y.npy"):
        np.testing.assert_array_equal(np.load(path), np.array([[4, 6]], np.float32))


@pytest.mark.parametrize(
    "options",
    [
        ["--output-dir=DIR"],
        ["--save=a/b=DIR/f", "--save=a_b=DIR/f"],
        ["--save=DIR/f", "--save=DIR/../DIR/./f"],
        ["--save=c=DIR/a_b.npy", "--output-dir=DIR"],
        ["--save=a/b=one/f", "--save=c=two/f"],  # `two` is `one`
    ],
    ids=str,
)
def test_no_output_is_written_over_another(
    options: list[str], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two outputs never share a file, whatever its name. One output may go to several files, and to one file twice."""
    g: Any = rlx.Graph("three")
    x = g.input("x", (2,))
    g.set_outputs({"a/b": x, "a_b": x + 1.0, "c": x + 2.0})
    (tmp_path / "m.mlir").write_text(str(g))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to("one")
    monkeypatch.chdir(tmp_path)
    call = ("run", "m.mlir", "--evaluate", "--input=x=2xf32=0")
    message = command.error(*call, *options)
    assert re.search(r"outputs '(a/b|a_b)' and '(a_b|c)' would both be written to ", message)
    assert not list(tmp_path.rglob("*f*.npy")) and not (tmp_path / "DIR").exists()
    command.output(*call, "--save=a_b=f", "--save=a_b=./f", "--save=a_b=g", "--save=c=h")
    assert [np.load(name)[0] for name in "fgh"] == [1, 1, 2]


def test_no_output_is_written_where_one_has_too_long_a_name(command: Command, tmp_path: Path) -> None:
    """The error is raised before the program runs, with the option that sets another name."""
    g: Any = rlx.Graph("two")
    x = g.input("x", (2,))
    g.set_outputs({"a": x, "n" * 300: x + 1.0})
    (tmp_path / "m.mlir").write_text(str(g))
    call = ("run", tmp_path / "m.mlir", "--evaluate", "--input=x=2xf32=0")
    for options in (f"--output-dir={tmp_path / 'all'}", f"--save={'n' * 300}={tmp_path / ('m' * 300)}"):
        message = command.error(*call, options, f"--save=a={tmp_path / 'a.npy'}")
        assert "a file name has at most 255 bytes, and this one has 30" in message and "--save=NAME=FILE.npy" in message
    assert [p.name for p in tmp_path.iterdir()] == ["m.mlir"]


def test_symbols_take_the_sizes_that_come(command: Command, tmp_path: Path) -> None:
    g = rlx.Graph("double")
    x = g.input("x", ("n",), "i32")
    g.set_outputs({"y": x + x})
    (tmp_path / "double.mlir").write_text(str(g))
    for options in ([], ["--evaluate"], ["--bind=n=3"]):
        out = command.output("run", tmp_path / "double.mlir", "--input=x=3xi32=1,-2,0x10", *options)
        assert out == "y: i32[3]\n[ 2 -4 32]\n"


def test_missing_arguments_are_named_with_the_flag_to_add(command: Command, hello: Path) -> None:
    message = command.error("run", hello)
    flags = re.findall(r"(input|param) '\w' \(f32\[\d, \d\]\) is missing: add (\S+)", message)
    assert flags == [("input", "--input=x=1x4xf32=0"), ("param", "--param=w=4x2xf32=0")]
    # The flags in the message work unchanged.
    assert command.output("run", hello, "--evaluate", *(flag for _, flag in flags)) == "y: f32[1, 2]\n[[0. 0.]]\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input=x"], "--input=x: expected NAME=@FILE.npy"),
        (["--input=x=1,2"], "--input=x=1,2: expected NAME=@FILE.npy"),
        (["--input=x=1x4xf32=1,2"], "expected 1 or 4 elements, got 2"),
        (["--input=x=1x4xf32="], "expected 1 or 4 elements, got 0"),
        (["--input=x=1x4xf32=one"], "'one' is not an element of f32"),
        (["--input=x=1x4xf33=1"], "f33"),
        (["--input=x=4xi8=128"], "128 is out of range for i8 (-128 to 127)"),
        (["--input=x=4xi8=1.5"], "'1.5' is not an element of i8"),
        (["--input=x=4xf32=1e39"], "1e+39 does not fit f32"),
        (["--input=x=4xf16=1,2,3,-1e5"], "-100000.0 does not fit f16"),
        ([f"--input=x={10**24}x4xf32=1"], "cannot make an array of"),
        ([f"--input=x={10**12}x4xf32=1"], "cannot make an array of"),
        ([f"--input=x={'9' * 5000}x4xf32=1"], "expected NAME="),
        (["--input=x=@nothing.npy"], "no such file: nothing.npy"),
        ([f"--input={X}", f"--input={X}"], "'x' is given twice"),
        (["--input=x=1x4xf64=1", f"--param={W}"], "input 'x' must be f32[1, 4], got float64[1, 4]"),
        (["--input=x=1x5xf32=1", f"--param={W}"], "input 'x' must be f32[1, 4], got float32[1, 5]"),
        ([f"--input={X}", f"--param={W}", "--input=z=f32=1"], "there is no input 'z'; the program has x"),
        ([f"--input={W}"], "'w' is no input; give it with --param"),
        ([f"--param={X}"], "'x' is no param; give it with --input"),
        ([f"--input={X}", "--params=nothing.safetensors"], "no such file: nothing.safetensors"),
        ([f"--input={X}", "--params=/"], "no such file: /model.safetensors"),
        (
            ["--evaluate", f"--input={X}", f"--param={W}", "--output-dir=/dev/null/x"],
            "cannot make the folder /dev/null/x: ",
        ),
        (["--device=toaster", f"--input={X}", f"--param={W}"], "'toaster'"),
        (["--repeat=0"], "--repeat must be a positive number"),
        (["--threads=0", f"--input={X}", f"--param={W}"], "threads must be an integer from 1 to 4096"),
        (["--save=z=z.npy"], "there is no output 'z'"),
        (["--save=a.npy", "--save=b.npy"], "--save=b.npy: the program has only 1 outputs"),
    ],
)
def test_mistakes(command: Command, hello: Path, options: list[str], message: str) -> None:
    assert message in command.error("run", hello, *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device=cuda"], "is compiled for cpu, not for cuda"),
        (["--evaluate"], "is compiled; --evaluate needs MLIR text"),
        (["--bind=n=3"], "is compiled; --bind needs MLIR text"),
        (["--precision=f16"], "is compiled; --precision needs MLIR text"),
        (["--threads=0"], "threads must be an integer from 1 to 4096, got 0"),
    ],
)
def test_an_artifact_is_for_one_device(
    command: Command, hello_artifact: Path, options: list[str], message: str
) -> None:
    assert message in command.error("run", hello_artifact, f"--input={X}", f"--param={W}", *options)


@pytest.mark.parametrize("kept", [4, 100, 0.5, 0.99])
def test_a_truncated_artifact(command: Command, hello_artifact: Path, tmp_path: Path, kept: float) -> None:
    data = hello_artifact.read_bytes()
    (tmp_path / "cut.rlxa").write_bytes(data[: kept if type(kept) is int else int(len(data) * kept)])
    assert "damaged" in command.error("run", tmp_path / "cut.rlxa", f"--input={X}", f"--param={W}")


def _argument(name: str, shape: Any, kind: str) -> Any:
    from rlx.ir.interface import Argument

    return Argument(name, kind, shape)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32=1.5", np.array(1.5, np.float32)),
        ("2x2xf64=1,2,3,4e-3", np.array([[1, 2], [3, 4e-3]])),
        ("3xf32=nan,inf,-inf", np.array([np.nan, np.inf, -np.inf], np.float32)),
        ("2x0xf32=1", np.zeros((2, 0), np.float32)),
        ("0xf32=", np.zeros(0, np.float32)),
        ("3xbool=true,0,1", np.array([True, False, True])),
        ("2xi1=false", np.array([False, False])),
        ("2xu8=0,255", np.array([0, 255], np.uint8)),
        ("2xi64=-9223372036854775808,1", np.array([-(2**63), 1])),
        ("2xc64=1+2i,-1j", np.array([1 + 2j, -1j], np.complex64)),
        ("2xf16=1, 2", np.array([1, 2], np.float16)),
    ],
)
def test_written_arrays(text: str, expected: np.ndarray) -> None:
    array = named_arrays([f"x={text}"], "--input", ())["x"]
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)


def test_inputs_parameters_and_outputs_of_every_dtype_are_files(command: Command, tmp_path: Path) -> None:
    g = rlx.Graph("main")
    outputs, flags, arrays = {}, [], {}
    for kind in DTYPES:
        array = np.array([[0, 1, 1]]).astype(kind.numpy) if kind is not rlx.f8e8m0fnu else np.ones((1, 3), kind.numpy)
        arrays[kind.name] = array
        tensors = []
        for role, option, declare in (("x", "--input", g.input), ("w", "--param", g.param)):
            path = tmp_path / f"{role}_{kind.name}.npy"
            save_array(str(path), array)
            flags.append(f"{option}={path.stem}=@{path}")
            tensors.append(declare(path.stem, (1, 3), kind))
        outputs[kind.name] = g.concat(tensors, 0)
    g.set_outputs(outputs)
    (tmp_path / "g.mlir").write_text(str(g))
    command.output("run", tmp_path / "g.mlir", "--evaluate", *flags, "--output-dir", tmp_path / "out")
    for name, array in arrays.items():
        assert np.load(tmp_path / "out" / f"{name}.npy").tobytes() == np.concatenate([array, array]).tobytes()
    save_array(str(tmp_path / "x_f32.npy"), arrays["f8e4m3fn"])
    call = command("run", tmp_path / "g.mlir", "--evaluate", *flags)
    assert call.code and "dtype the file does not name" in call.err and "x_f32.npy" in call.err


@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_every_dtype_survives_a_file(kind: rlx.DType, tmp_path: Path) -> None:
    """A file without a dtype gets the dtype of the argument, and NumPy can read the file."""
    argument = rlx.Graph("g").input("x", (3,), kind).builder.arguments[0]
    for array in (np.ones((2, 3)).astype(kind.numpy), np.ones((), kind.numpy), np.ones((0, 2)).astype(kind.numpy)):
        path = str(tmp_path / "x.npy")
        save_array(path, array)
        loaded = named_arrays([f"x=@{path}"], "--input", (argument,))["x"]
        assert loaded.dtype == array.dtype and loaded.shape == array.shape and loaded.tobytes() == array.tobytes()
        assert np.load(path).tobytes() == array.tobytes()
        if kind.is_numpys_own or kind.bits > 8:
            assert named_arrays([f"x=@{path}"], "--input", ())["x"].dtype == array.dtype
        else:
            with pytest.raises(rlx.Error, match="does not name"):
                named_arrays([f"x=@{path}"], "--input", ())


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x93NUMPY\x01\x00"])
def test_files_that_hold_no_array(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(rlx.Error, match=r"x\.npy"):
        named_arrays([f"x=@{tmp_path / 'x.npy'}"], "--input", ())


def test_files_that_hold_objects_are_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(rlx.Error, match=r"tensor 'x' of .* is of dtype object"):
        named_arrays([f"x=@{tmp_path / 'x.npy'}"], "--input", ())


def test_the_flag_for_a_symbolic_argument_reads_a_file() -> None:
    assert flag_for(_argument("x", rlx.Shape(("n", 4)), "input")) == "--input=x=@FILE.npy"
    assert flag_for(_argument("s", rlx.Shape((), rlx.i32), "param")) == "--param=s=i32=0"
