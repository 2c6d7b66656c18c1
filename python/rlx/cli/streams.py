"""Standard input, output and error of the commands. They may be closed, full, or have a limited encoding."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from rlx.support.printable import printable

# Replacements for terminals without Unicode. All other characters are shown by their number.
_ASCII = {"…": "...", "–": "-", "—": "-", "×": "x", "µ": "u", "²": "^2", "≤": "<=", "≥": ">=", "→": "->", "·": "*"}

BROKEN_PIPE = 141  # a shell's exit code for a program that was ended by SIGPIPE


def prepare_streams() -> None:
    """Make the standard streams usable, however the process was started.

    Characters that the encoding of standard output or error lacks are written in ASCII. Messages to a closed standard
    error are dropped. The descriptors of closed streams are opened on the null device. Otherwise the next opened file
    would get their number, and libraries would print into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest free number
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 as long as the process
    codecs.register_error("rlx.ascii", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="rlx.ascii")


def _in_ascii(problem: UnicodeError) -> tuple[str, int]:
    assert isinstance(problem, UnicodeEncodeError)
    missing = problem.object[problem.start : problem.end]
    replacements = (_ASCII.get(c) or c.encode("ascii", "backslashreplace").decode() for c in missing)
    return "".join(replacements), problem.end


def standard_input() -> TextIO:
    """Return the stream for a command's input without a file.

    Raises:
        Error: The program was started without standard input.
    """
    return _open_stream(sys.stdin, "standard input", "give the path of a file")


def standard_output() -> TextIO:
    """Return the stream for results without an output file.

    Raises:
        Error: The program was started without standard output.
    """
    return _open_stream(sys.stdout, "standard output", "redirect it to a file")


def _open_stream(stream: TextIO | None, name: str, instead: str) -> TextIO:
    from rlx.support.errors import Error

    if stream is None:
        raise Error(f"{name} is closed", hint=f"open it, or {instead}")
    return stream


@contextlib.contextmanager
def _naming_standard_output() -> Iterator[None]:
    """Name standard output in system errors from the body."""
    from rlx.support.errors import Error

    try:
        yield
    except BrokenPipeError:  # not an error: the reader has closed the pipe
        raise
    except OSError as problem:
        raise Error(f"cannot write to standard output: {problem.strerror}") from None


def write(data: str | bytes) -> None:
    """Write the result of a command to standard output.

    Raises:
        Error: Standard output is closed, or cannot be written.
    """
    output = standard_output()
    with _naming_standard_output():
        binary = getattr(output, "buffer", None)
        if isinstance(data, str) or binary is None:
            output.write(data if isinstance(data, str) else data.decode())
        else:
            output.flush()
            binary.write(data)
        output.flush()


def say(text: str, *, stream: TextIO | None = None, end: str = "\n") -> None:
    """Print readable text. Control characters, for example from names in files, are escaped.

    Args:
        text: The text.
        stream: The stream to write to; standard output by default.
        end: The text that follows.

    Raises:
        Error: Standard output is closed, or cannot be written.
    """
    if stream is not None:
        print(printable(text), end=end, file=stream)
        return
    output = standard_output()
    with _naming_standard_output():
        print(printable(text), end=end, file=output)


def flush() -> None:
    """Flush standard output.

    Raises:
        Error: It cannot be written.
    """
    if sys.stdout is not None:
        with _naming_standard_output():
            sys.stdout.flush()


def reader_has_gone() -> int:
    """Return the exit code after a `BrokenPipeError`: the reader of standard output has ended, as `head` does.

    The remaining output goes to the null device, because Python would fail again when it flushes at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
