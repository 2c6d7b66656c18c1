"""The exceptions of RLX: each says what happened, where, what was expected and what to do."""

from __future__ import annotations

from typing import Self

from rlx.support.printable import printable
from rlx.support.short import cut


class Error(Exception):
    """Base of every exception that RLX raises on purpose.

    Args:
        message: What went wrong, what was expected and what came.
        location: The user's own place, as ``file:line`` or ``file:line:col``.
        hint: What to do about it.
        caller: The user's line that asked for it, where the location is a place in another file: in a model.

    Message and hint are of bounded length, however long the values are that they repeat.
    """

    _longest: int | None = 6000  # characters

    def __init__(
        self, message: str, *, location: str | None = None, hint: str | None = None, caller: str | None = None
    ):
        message, hint = cut(message), cut(hint) if hint else hint
        if self._longest is not None and len(message) > self._longest:
            message = f"{message[: self._longest]} … of {len(message)} characters"
        self.message = message
        self.location = location
        self.hint = hint
        self.caller = caller
        text = f"{cut(location)}: {message}" if location else message
        notes = [f"\n  {what}: {note}" for what, note in (("called at", caller), ("hint", hint)) if note]
        super().__init__(printable("".join([text, *notes])))

    def moved(self, message: str | None = None, *, location: str | None = None, hint: str | None = None) -> Self:
        """The same error with another message, place or hint; what is None stays."""
        return self._again(message, location, hint, self.caller)

    def called_at(self, place: str | None) -> Self:
        """The same error, which names the user's line that asked for it as well."""
        if place is None or self.caller is not None or self.location == place:
            return self
        return self._again(None, self.location or place, None, place if self.location else None)

    def _again(self, message: str | None, location: str | None, hint: str | None, caller: str | None) -> Self:
        made = type(self).__new__(type(self))  # a subclass may be made of other things than a message
        made.__dict__ |= self.__dict__
        text = self.message if message is None else message
        Error.__init__(
            made, text, location=location or self.location, hint=self.hint if hint is None else hint, caller=caller
        )
        return made


class ShapeError(Error):
    """Operands, attributes or a declared result do not fit together."""


class IndexShapeError(ShapeError, IndexError):
    """An index does not fit a tensor: for code of arrays, which expects an `IndexError`."""


class StageError(Error):
    """A method was called on a module at a stage (HIR, MIR, LIR) that does not have it."""


class ParseError(Error):
    """Text is not a valid module; ``location`` is ``file:line:col``."""


class VerificationError(Error):
    """A module breaks a rule of the dialect."""


class PassError(Error):
    """A pipeline names an unknown pass or option, or a pass failed."""


class CompileError(Error):
    """A back end could not compile a module.

    Attributes:
        details: The whole message. A compiler may print the module, with the cause somewhere in it: `message` has the cause
            first, and little of the rest.
    """

    def __init__(self, message: str, *, location: str | None = None, hint: str | None = None):
        self.details = message
        super().__init__(_bounded(message, self._longest), location=location, hint=hint)


_LONGEST_LINE = 600
_CAUSES = 10


def _bounded(message: str, longest: int | None) -> str:
    """A message whose length is bounded: its first line, then those that speak of an error, then as many others as fit."""
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
