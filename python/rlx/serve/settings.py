"""`ServerSettings`: limits, keys and names of a server, checked."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from rlx.support.errors import Error
from rlx.support.options import described
from rlx.support.short import short_repr

KEY_VARIABLE = "RLX_API_KEY"
_LONGEST_TIME = 7 * 24 * 3600.0


@dataclass(frozen=True)
class ServerSettings:
    """The settings of a server.

    A new one is a field here, the same name in `ServerKeywords`, and a check.

    Raises:
        Error: A value is not valid.
    """

    alias: str | None = field(
        default=None,
        metadata=described(
            "The name of the model for clients; by default that of its file.",
            "--alias",
            metavar="NAME",
            help="the name of the model for clients (default: that of the file)",
        ),
    )
    api_keys: Sequence[str] = field(
        default=(),
        repr=False,
        metadata=described(
            "Keys that clients must send. Without them all clients are served.",
            "--api-key",
            action="append",
            metavar="KEY",
            help=f"a key that clients must send; also read from the variable {KEY_VARIABLE}, which other users do not see",
        ),
    )
    parallel: int = field(
        default=4,
        metadata=described(
            "The largest number of requests that are computed at once.",
            "--parallel",
            type=int,
            metavar="N",
            help="requests that are computed at once (%(default)s)",
        ),
    )
    queue: int = field(
        default=64,
        metadata=described(
            "The largest number of requests that wait; the next one is refused (429).",
            "--queue",
            type=int,
            metavar="N",
            help="requests that wait; others are refused (%(default)s)",
        ),
    )
    timeout: float = field(
        default=600.0,
        metadata=described(
            "The largest number of seconds for a request, waiting included.",
            "--timeout",
            type=float,
            metavar="SECONDS",
            help="the largest time for a request (%(default)g)",
        ),
    )
    body_limit: int = field(
        default=4 << 20,
        metadata=described(
            "The largest number of bytes of a request.",
            "--body-limit",
            type=int,
            metavar="BYTES",
            help="the largest size of a request (%(default)s)",
        ),
    )
    body_timeout: float = field(
        default=30.0, metadata=described("The largest number of seconds in which a request must arrive.")
    )
    hosts: Sequence[str] = field(
        default=(),
        metadata=described(
            "Host names that clients without a key may use, in addition to localhost and addresses.",
            "--allow-host",
            action="append",
            metavar="NAME",
            help="a host name that clients without a key may use",
        ),
    )
    cors: Sequence[str] = field(
        default=(),
        metadata=described(
            'Origins of web pages of other hosts that browsers let use the server, such as `"https://example.com"`.',
            "--cors",
            action="append",
            metavar="ORIGIN",
            help="an origin whose web pages may use the server",
        ),
    )

    def __post_init__(self) -> None:
        for name in ("api_keys", "hosts", "cors"):
            object.__setattr__(self, name, _texts(name, getattr(self, name)))
        if self.alias is not None and not _is_text(self.alias):
            raise Error(f"alias must be a text that is not empty, got {short_repr(self.alias)}")
        for name, least, most in (("parallel", 1, 256), ("queue", 0, 1 << 20), ("body_limit", 1, 1 << 32)):
            object.__setattr__(self, name, _count(name, getattr(self, name), least, most))
        for name in ("timeout", "body_timeout"):
            object.__setattr__(self, name, _seconds(name, getattr(self, name)))
        for key in self.api_keys:
            if not (key.isascii() and key.isprintable() and key.strip() == key):
                raise Error("an API key must have printable ASCII characters only, without spaces at its ends")


class ServerKeywords(TypedDict, total=False):
    """The fields of `ServerSettings` as keywords of a call, for `**settings: Unpack[ServerKeywords]`."""

    alias: str | None
    api_keys: Sequence[str]
    parallel: int
    queue: int
    timeout: float
    body_limit: int
    body_timeout: float
    hosts: Sequence[str]
    cors: Sequence[str]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def _texts(name: str, value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if isinstance(texts, (list, tuple)) and all(map(_is_text, texts)):
        return tuple(texts)
    shown = "" if name == "api_keys" else f", got {short_repr(value)}"  # no secrets in messages
    raise Error(f"{name} must be a list of texts that are not empty{shown}")


def _count(name: str, value: Any, least: int, most: int) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise Error(f"{name} must be an integer from {least} to {most}, got {short_repr(value)}")
    return number


def _seconds(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number <= _LONGEST_TIME:
        raise Error(
            f"{name} must be a number of seconds above 0 and at most {_LONGEST_TIME:g}, got {short_repr(value)}"
        )
    return number
