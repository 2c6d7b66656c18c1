"""Checks of a folder into which the files of a program are written: other programs there, and old files."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from rlx.cli.streams import say

# The suffixes of source files. Tools process all files with these suffixes in a folder.
_SOURCES = frozenset({".c", ".h", ".mem", ".sv"})
# The comment at the start of a C or SystemVerilog file, whose lines are wrapped. A testbench begins with a directive.
_COMMENT = re.compile(rb"/\*(.*?)\*/|(?:`timescale [^\n]*\n)?((?://[^\n]*\n)+)", re.DOTALL)
_START_OF_LINE = re.compile(r"\n *(?:\*|//)? *")
# The name of the program in this comment.
_PROGRAM = re.compile(
    r"(.+?): (?:a network|its constants|the (?:code|constants|self-test) of a network)\b"
    r"|// (?:The|Feeds the) design (\w+)[ ,]"
)
_OTHERWISE = "choose another folder, or another name: --name=NAME"
# The languages of programs, by the suffix of their main files.
_LANGUAGES = {".c": "C", ".sv": "SystemVerilog"}
_MOST_BYTES = 4096


def check_no_other_program(folder: str, files: Mapping[str, bytes]) -> None:
    """Check that no file that will be replaced is of a program with another name, or in another language.

    The names of programs may collide: the self-test of `net` in C is `net_test.c`, and so is the code of `net_test`. Programs
    of one name in C and in SystemVerilog both have a `net.md`.

    Args:
        folder: The folder, which may be missing.
        files: The contents of the new files, by name.

    Raises:
        Error: A file is of another program.
    """
    from rlx.support.errors import Error

    for name, data in files.items():
        old, new = _program_of(_start_of(Path(folder, name))), _program_of(data)
        if old is not None and new is not None and old != new:
            raise Error(
                f"{folder}: {name} is a file of the program {old}, and also of {new}: nothing is written",
                hint=_OTHERWISE,
            )
    for name in files:
        _check_language(folder, name, files)


def _check_language(folder: str, name: str, files: Mapping[str, bytes]) -> None:
    """Check that a file that will be replaced is not of a program of the same name in another language.

    Raises:
        Error: It is.
    """
    from rlx.support.errors import Error

    path = Path(folder, name)
    if path.suffix in _SOURCES or not path.exists():
        return
    for suffix, language in _LANGUAGES.items():
        main = f"{path.stem}{suffix}"
        if main not in files and _program_of(_start_of(path.with_suffix(suffix))) is not None:
            raise Error(
                f"{folder}: {name} is also a file of the {language} program {main}: nothing is written", hint=_OTHERWISE
            )


def _start_of(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST_BYTES)
    except OSError:  # The file is missing, or it cannot be read. Writing reports other problems.
        return b""


def _program_of(data: bytes) -> str | None:
    """Return the name of the program in the first comment of a file; None if there is none."""
    comment = _COMMENT.match(data)
    if comment is None:
        return None
    text = (comment[1] or comment[2]).decode(errors="replace").strip()
    match = _PROGRAM.match(_START_OF_LINE.sub(" ", text))
    return (match[1] or match[2]) if match else None


def warn_of_others(folder: str, files: Mapping[str, bytes]) -> None:
    """Warn about files in a folder that look like an older program: tools that process all sources would include them.

    If the names of all sources begin with the name of the program, only files with this prefix count.
    """
    sources = [name for name in files if Path(name).suffix in _SOURCES]
    kinds, stems = {Path(name).suffix for name in sources}, sorted((Path(name).stem for name in sources), key=len)
    others = sorted(p.name for p in Path(folder).iterdir() if p.suffix in kinds and p.name not in files)
    if all(stem == stems[0] or stem.startswith(f"{stems[0]}_") for stem in stems):
        others = [name for name in others if name.startswith((f"{stems[0]}_", f"{stems[0]}."))]
    if others:
        shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        message = (
            f"rlx: warning: {folder} also has files that this program has not: {shown}; remove them if they are old"
        )
        say(message, stream=sys.stderr)
