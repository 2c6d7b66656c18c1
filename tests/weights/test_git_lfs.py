"""Every reader of files identifies a Git LFS pointer file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.support.files import check_fetched, read_json
from rlx.weights.mapped import content_of

_POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 90868376\n"
# The readers by name, each with a file name.
_READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "weights": ("model.safetensors", rlx.weights.open),
    "an array": ("x.npy", rlx.weights.open),
    "an index": ("model.safetensors.index.json", rlx.weights.open),
    "ONNX": ("model.onnx", rlx.from_onnx),
    "StableHLO": ("model.mlirbc", rlx.from_stablehlo),
    "a graph": ("model.mlir", rlx.parse),
    "an artifact": ("model.rlxa", rlx.load),
    "a model": ("config.json", lambda path: rlx.models.load(path.parent)),
    "JSON": ("config.json", read_json),
}


@pytest.mark.parametrize("kind", _READERS)
def test_pointers(kind: str, tmp_path: Path) -> None:
    name, read = _READERS[kind]
    (tmp_path / name).write_text(_POINTER)
    with pytest.raises(
        rlx.Error, match="is a pointer of Git LFS: the file of 90868376 bytes has not been fetched"
    ) as caught:
        read(tmp_path / name)
    assert name in str(caught.value) and "git lfs pull" in str(caught.value.hint)


def test_other_files_are_no_pointers(tmp_path: Path) -> None:
    for content in (b"", b"version", b"version https://git-lfs.github.com/", _POINTER.encode()[1:]):
        check_fetched(content, "file")
        (tmp_path / "file").write_bytes(content)
        assert bytes(content_of(tmp_path / "file")) == content
    with pytest.raises(rlx.Error, match="the file has not been fetched"):
        check_fetched(_POINTER.encode()[:60], "file")
