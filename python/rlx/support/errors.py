"""Exceptions of RLX. Each reports what happened, where, what was expected and how to fix it."""

from __future__ import annotations

from typing import Self

from rlx.support.printable import printable
from rlx.support.short import shorten_lines


class Error(Exception):
    """Base of every exception that RLX raises on purpose.

    Args:
        message: The mistake, the expected value and the actual value.
        location: The location in the user's code, as ``file:line`` or ``file:line:col``.
        hint: How to fix it.
        caller: The user's line that made the call, if `location` is in another file, such as a model.

    The length of message and hint is bounded, even if they quote long values.
    """

    _longest: int | None = 6000  # characters

    def __init__(
        self, message: str, *, location: str | None = None, hint: str | None = None, caller: str | None = None
    ):
        message, hint = shorten_lines(message), shorten_lines(hint) if hint else hint
        if self._longest is not None and len(message) > self._longest:
            message = f"{message[: self._longest]} … of {len(message)} characters"
        self.message = message
        self.location = location
        self.hint = hint
        self.caller = caller
        text = f"{shorten_lines(location)}: {message}" if location else message
        notes = [f"\n  {what}: {note}" for what, note in (("called at", caller), ("hint", hint)) if note]
        super().__init__(printable("".join([text, *notes])))

    def moved(self, message: str | None = None, *, location: str | None = None, hint: str | None = None) -> Self:
        """Return the same error with another message, location or hint; arguments that are None keep the old text."""
        return self._again(message, location, hint, self.caller)

    def called_at(self, place: str | None) -> Self:
        """Return the same error, which also names the user's line that made the call."""
        if place is None or self.caller is not None or self.location == place:
            return self
        return self._again(None, self.location or place, None, place if self.location else None)

    def _again(self, message: str | None, location: str | None, hint: str | None, caller: str | None) -> Self:
        made = type(self).__new__(type(self))  # subclasses may take other arguments than a message
        made.__dict__ |= self.__dict__
        text = self.message if message is None else message
        Error.__init__(
            made, text, location=location or self.location, hint=self.hint if hint is None else hint, caller=caller
        )
        return made


class ShapeError(Error):
    """Operands, attributes or a declared result do not fit together."""


class IndexShapeError(ShapeError, IndexError):
    """An index does not fit a tensor. Also an `IndexError`, which array code expects."""


class StageError(Error):
    """A method was called at a stage (HIR, MIR, LIR) that does not support it."""


class ParseError(Error):
    """Text is not a valid module; ``location`` is ``file:line:col``."""


class VerificationError(Error):
    """A module breaks a rule of the dialect."""


class PassError(Error):
    """A pipeline names an unknown pass or option, or a pass failed."""


class CompileError(Error):
    """A back end could not compile a module.

    Attributes:
        details: The complete message. A compiler may print the whole module with the cause somewhere in it; `message`
            has the cause first and is shortened.
    """

    def __init__(self, message: str, *, location: str | None = None, hint: str | None = None):
        self.details = message
        super().__init__(_bounded(message, self._longest), location=location, hint=hint)


_LONGEST_LINE = 600
_CAUSES = 10


def _bounded(message: str, longest: int | None) -> str:
    """Shorten a message to its first line, the lines that contain "error", and other lines up to the limit."""
    if longest is None or len(message) <= longest:
        return message
    first, *rest = [
        line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …" for line in message.splitlines()
    ] or [""]
    causes = [line for line in rest if "error" in line.lower()][:_CAUSES]
    kept, size = [first, *causes], sum(map(len, (first, *causes)))
    for line in (line for line in rest if line not in causes):
        size += len(line)
        if size > longest // 2:
            break
        kept.append(line)
    return "\n".join([*kept, f"… of {len(message)} characters: all are in the attribute `details` of this error"])


class UnsupportedError(CompileError):
    """A target cannot express some op; the message lists every such op with its location."""

    _longest = None


class ExecutionError(Error):
    """A compiled program failed while it ran or while it was loaded."""
