"""Files of compiled programs. Reading any bytes returns a complete, consistent and expected program, or raises `rlx.Error`."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.runtime.program import Program
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.container import pack_archive
from tools.fuzz.documents import places
from tools.fuzz.frame import outcome_of, random_of
from tools.fuzz.kinds import artifacts as fuzzed
from tools.fuzz.kinds import files as fuzzed_files

TARGETS = ["cpu", "xla"]


@cache
def written(target: str, which: int) -> bytes:
    """A file: static sizes, a parameter and a state (0), or symbols, requirements and a donated input (1)."""
    if target == "xla":
        pytest.importorskip("jax")
    fuzzed.KIND.prepare()
    return fuzzed.KIND.files[2 * TARGETS.index(target) + which]


def members(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    return fuzzed.members(data)


def sealed(manifest: Any, others: dict[str, bytes]) -> bytes:
    """A file with correct checksums and any content."""
    if isinstance(manifest, dict):
        manifest = fuzzed.sealed(manifest, others)
    return pack_archive({"manifest.json": json.dumps(manifest).encode(), **others})


def zipped(entries: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return buffer.getvalue()


def refusal(data: bytes) -> str:
    with pytest.raises(rlx.Error) as caught:
        Artifact.from_bytes(data, "the file")
    assert str(caught.value).startswith("the file")
    return str(caught.value)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("which", [0, 1])
def test_a_file_says_everything_and_is_the_same_each_time(target: str, which: int, tmp_path: Path) -> None:
    data = written(target, which)
    artifact = Artifact.from_bytes(data)
    assert artifact.to_bytes() == data
    assert artifact.sha256 == hashlib.sha256(data).hexdigest()
    artifact.save(tmp_path / "a.rlxa")
    assert (tmp_path / "a.rlxa").read_bytes() == data
    fuzzed.use(rlx.load(tmp_path / "a.rlxa", threads=1))


def test_values_that_json_has_no_numbers_for_are_kept() -> None:
    (state,) = Artifact.from_bytes(written("cpu", 1)).signature.of_kind("state")
    assert state.init == float("-inf")
    assert "Infinity" not in json.dumps(members(written("cpu", 1))[0])


# --- the expected file --------------------------------------------------------------------------------


def test_the_expected_hash(tmp_path: Path) -> None:
    path, data = tmp_path / "a.rlxa", written("cpu", 0)
    path.write_bytes(data)
    right = hashlib.sha256(data).hexdigest()
    for form in (right, right.upper()):
        assert Artifact.load(path, expected_sha256=form).sha256 == right
        fuzzed.use(rlx.load(path, expected_sha256=form))
    wrong = hashlib.sha256(b"").hexdigest()
    for load in (rlx.load, Artifact.load):
        with pytest.raises(rlx.Error, match=f"another file than expected: its SHA-256 is {right}, not {wrong}"):
            load(path, expected_sha256=wrong)
        for none in ("", right[:-1], right + "0", "g" * 64, right.encode(), 7):
            with pytest.raises(rlx.Error, match="64 hexadecimal digits"):
                load(path, expected_sha256=none)  # type: ignore[arg-type]
    # The hash is checked before all other contents.
    path.write_bytes(b"no artifact")
    with pytest.raises(rlx.Error, match="another file than expected"):
        rlx.load(path, expected_sha256=right)


# --- the archive --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_damage_is_found_wherever_it_is(target: str) -> None:
    data = written(target, 1)
    step = max(1, len(data) // 1500)
    for position in range(0, len(data), step):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        with contextlib.suppress(rlx.Error):  # the damaged byte may be irrelevant, such as a date
            assert Artifact.from_bytes(bytes(damaged)).to_bytes() == data, position
    for length in range(0, len(data), step):
        with pytest.raises(rlx.Error):
            Artifact.from_bytes(data[:length])


def test_the_checksums_find_what_the_archive_does_not() -> None:
    manifest, others = members(written("cpu", 0))
    for name, data in others.items():
        other = bytearray(data)
        other[len(other) // 2] ^= 1
        told = refusal(pack_archive({"manifest.json": json.dumps(manifest).encode(), **others, name: bytes(other)}))
        assert f"{name} is damaged, or another one" in told
    manifest["entries"][0]["programs"][0]["info"]["borrow"] = not manifest["entries"][0]["programs"][0]["info"][
        "borrow"
    ]
    assert "checksum" in refusal(pack_archive({"manifest.json": json.dumps(manifest).encode(), **others}))


def test_a_file_of_a_back_end_that_is_not_installed() -> None:
    manifest, others = members(written("cpu", 0))
    manifest["entries"][0]["programs"][0]["target"] = "toy"
    told = refusal(sealed(manifest, {"programs/0-toy-host": next(iter(others.values()))}))
    assert "it is for target 'toy', for which no back end is installed" in told
    assert "damaged" not in told


def test_nothing_is_inflated() -> None:
    bomb = zipped([("manifest.json", b"{}"), ("program", bytes(50 << 20))], zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 20
    assert "manifest.json is compressed" in refusal(bomb)
    manifest, others = members(written("cpu", 0))
    entries = [("manifest.json", json.dumps(manifest).encode()), *others.items()]
    assert "is compressed" in refusal(zipped(entries, zipfile.ZIP_DEFLATED))


def _lying_about(size: int) -> bytes:
    data = bytearray(pack_archive({"manifest.json": b"{}", "program": b"x"}))
    at = data.index(b"PK\x01\x02")
    data[at + 20 : at + 28] = struct.pack("<II", size, size)
    return bytes(data)


def _renamed(name: bytes) -> bytes:
    """An archive with another name, of the same length, for the second member."""
    assert len(name) == len("programs/0-cpu-host")
    return pack_archive({"manifest.json": b"{}", "programs/0-cpu-host": b""}).replace(b"programs/0-cpu-host", name)


def _twice() -> bytes:
    """An archive whose table has one member twice."""
    return pack_archive({"manifest.json": b"{}", "manifest.jsom": b"{}"}).replace(b"manifest.jsom", b"manifest.json")


def _elsewhere() -> bytes:
    """An archive whose table has the same offset for two members."""
    data = bytearray(pack_archive({"manifest.json": b"{}", "program": b"{}"}))
    at = data.rindex(b"PK\x01\x02")
    data[at + 42 : at + 46] = bytes(4)
    return bytes(data)


MANIFEST, PROGRAM = ("manifest.json", b"{}"), ("program", b"")
ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "0 bytes"),
    "text": (lambda: b"module {}" * 10, "not the end of an archive"),
    "no members": (lambda: zipped([]), "0 members"),
    "too many": (lambda: pack_archive({f"m{i}": b"" for i in range(300)}), "300 members"),
    "not aligned": (lambda: zipped([MANIFEST]), "does not begin at a multiple of 64 bytes"),
    "no manifest": (lambda: pack_archive(dict([PROGRAM])), "its first member is not manifest.json"),
    "another order": (lambda: pack_archive(dict([PROGRAM, MANIFEST])), "its first member is not manifest.json"),
    "twice the same": (_twice, "two members manifest.json"),
    "at one place": (_elsewhere, "is damaged"),
    "out of the folder": (lambda: _renamed(b"../../../home/u/.rc"), "is not the name of a member"),
    "a folder of the system": (lambda: _renamed(b"/etc/cron.d/program"), "is not the name of a member"),
    "another drive": (lambda: _renamed(b"C:\\windows\\prog.exe"), "is not the name of a member"),
    "a folder more": (lambda: _renamed(b"programs/0/cpu-host"), "is not the name of a member"),
    "long names": (lambda: zipped([("a" * 60000, b""), PROGRAM]), "is not the name of a member"),
    "larger than the file": (lambda: _lying_about(1 << 30), "1073741824 bytes"),
    "zip64": (lambda: _lying_about(0xFFFFFFFF), "4294967295 bytes"),
    "a comment": (lambda: pack_archive(dict([MANIFEST, PROGRAM]))[:-2] + b"\x01\x00x", "not the end"),
    "bytes behind": (lambda: pack_archive(dict([MANIFEST, PROGRAM])) + b"x", "not the end"),
    "bytes before": (lambda: b"x" + pack_archive(dict([MANIFEST, PROGRAM])), "not the end"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_other_archives(name: str) -> None:
    make, expected = ARCHIVES[name]
    told = refusal(make())
    assert "is not a compiled RLX program, or is damaged" in told and expected in told


# --- the manifest -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 40 + "]" * 40, "nested too deeply"),
        ('{"format": NaN}', "NaN is not a number"),
        ('{"format": 1e999}', "1e999 is not a number"),
        ('{"format": ' + "9" * 5000 + "}", "not JSON"),
        ('{"format": 7, "format": 7}', "two entries of one name"),
        ('{"format": 1}', "format 1, this version reads 7"),
        ('{"format": [[1]]}', "format a list of 1, this version reads 7"),
        ("[]", "expected an object"),
        ('{"format": 7}', "manifest has no"),
        ('"\\ud800"', "expected an object"),
    ],
)
def test_other_manifests(text: str, expected: str) -> None:
    assert expected in refusal(pack_archive({"manifest.json": text.encode()}))
    assert "\ud800" not in expected


VALUES = (None, True, -1, 2**63, 0.5, "", "-n", "\0", "\ud800", [], [None, 0], {})


@pytest.mark.parametrize("target", TARGETS)
def test_any_value_at_any_place(target: str) -> None:
    """With a correct checksum, the file is rejected, or the program runs."""
    manifest, others = members(written(target, int(target == "cpu")))  # XLA would compile the other file each time
    for place in range(len(places(manifest))):
        for value in (*VALUES, ...):
            changed = copy.deepcopy(manifest)
            container, key = places(changed)[place]
            if value is ...:
                del container[key]
            else:
                container[key] = value
            with contextlib.suppress(rlx.Error):
                fuzzed.use(Program(Artifact.from_bytes(sealed(changed, others)), threads=1))


def changes() -> dict[str, Callable[[dict[str, Any]], None]]:
    """Changes that make a signature consistent, but different from that of its program."""

    def argument(which: int, **values: Any) -> Callable[[dict[str, Any]], None]:
        return lambda m: m["signature"]["arguments"][which].update(values)

    return {
        "another dtype": argument(0, dtype="f64"),
        "another dtype of the same size": argument(0, dtype="i32"),
        "larger": argument(0, dims=["n", 300]),
        "another rank": argument(0, dims=["n", 3, 1]),
        "sizes that are equal": argument(1, dims=["n", 3]),
        "sizes that are not related": argument(0, dims=["k", 3]),
        "a size that is fixed": argument(0, dims=[1000, 3]),
        "not donated": argument(1, donate=False),
        "another kind": argument(0, kind="param"),
        "a larger state": argument(2, dims=[3000]),
        "one argument less": lambda m: m["signature"]["arguments"].pop(1),
        "one argument more": lambda m: m["signature"]["arguments"].append(
            m["signature"]["arguments"][0] | {"name": "more"}
        ),
        "another order": lambda m: m["signature"]["arguments"].reverse(),
        "a larger result": lambda m: m["signature"]["outputs"][1].update(dims=[2, 3]),
        "one result less": lambda m: m["signature"]["outputs"].pop(),
        "another function": lambda m: m["signature"].update(name="rlx.get.total"),
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", changes())
def test_a_signature_of_another_program(target: str, name: str) -> None:
    """The program would access memory out of bounds. Loading the file raises an error."""
    manifest, others = members(written(target, 1))
    changes()[name](manifest["entries"][0])
    artifact = Artifact.from_bytes(sealed(manifest, others))
    compiled = Program(artifact, threads=1)
    compiled.set_params(
        {a.name: np.ones(a.shape.bind({"n": 3}).static, np.float32) for a in artifact.signature.of_kind("param")}
    )
    with pytest.raises(rlx.Error):
        compiled.load()


@pytest.mark.parametrize("target", TARGETS)
def test_the_program_of_another_artifact(target: str) -> None:
    manifest, _ = members(written(target, 0))
    _, others = members(written(target, 1))
    compiled = Program(Artifact.from_bytes(sealed(manifest, others)), threads=1)
    compiled.set_param("w", np.ones((3, 4), np.float32))
    with pytest.raises(rlx.Error):
        compiled.load()


def test_what_a_call_relies_on_belongs_to_the_program() -> None:
    """The facts that a program only reads its arguments, and that it accepts certain sizes."""
    manifest, others = members(written("cpu", 1))
    assert manifest["entries"][0]["programs"][0]["info"]["requirements"]
    for entry, value in (("requirements", []), ("borrow", not manifest["entries"][0]["programs"][0]["info"]["borrow"])):
        changed = copy.deepcopy(manifest)
        changed["entries"][0]["programs"][0]["info"][entry] = value
        with pytest.raises(rlx.ExecutionError, match="another one than the artifact describes"):
            Program(Artifact.from_bytes(sealed(changed, others))).load()


@pytest.mark.parametrize(
    "option",
    [
        ["xla_dump_to", "PATH"],
        ["xla_cpu_prefer_vector_width", 100],
        ["xla_backend_optimization_level", "x"],
        ["xla_cpu_enable_fast_math", 1],
        ["", 0],
        ["xla_cpu_enable_fast_math"],
        "xla_cpu_enable_fast_math",
    ],
)
def test_options_in_a_file_are_those_that_touch_nothing(option: Any, tmp_path: Path) -> None:
    manifest, others = members(written("xla", 0))
    if option[-1] == "PATH":
        option[-1] = str(tmp_path / "dump")
    manifest["entries"][0]["programs"][0]["info"]["options"] = [option]
    refusal(sealed(manifest, others))
    manifest["entries"][0]["programs"][0]["info"]["options"] = [["xla_cpu_enable_fast_math", True]]
    assert Artifact.from_bytes(sealed(manifest, others)).info["options"] == [["xla_cpu_enable_fast_math", True]]
    assert not list(tmp_path.iterdir())


# --- a sample of the fuzzers' inputs ------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "count"), [(fuzzed.KIND, 80), (fuzzed_files.KIND, 200)], ids=["artifacts", "files"])
def test_fuzzed(kind: Any, count: int) -> None:
    for package in ("jax", "tokenizers", "safetensors"):
        pytest.importorskip(package)
    kind.prepare()
    for index in range(count):
        data = kind.make(random_of(kind.name, 7, index))
        outcome, what, detail = outcome_of(kind, data)
        assert outcome != "found", f"#{index}: {what}\n{detail}"


def test_the_damage_is_the_same_for_a_seed() -> None:
    kind = fuzzed_files.KIND
    pytest.importorskip("tokenizers")
    kind.prepare()
    assert kind.make(random.Random("a")) == kind.make(random.Random("a"))
