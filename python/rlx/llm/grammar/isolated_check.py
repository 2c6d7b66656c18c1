"""Program that compiles a grammar, and prints the mistake if it has one. See `isolation.py`.

It imports nothing of RLX, so that it starts fast.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

_STACK = 2 << 20  # a quarter of the usual one: a grammar that fits can be compiled by any thread
_LONGEST = 2000


class ByteVocabulary:
    """A vocabulary of single bytes, as `llguidance` reads one."""

    is_tokenizer_wrapper = True
    eos_token_id = 256
    bos_token_id = None
    special_token_ids = [256]
    tokens = [bytes([byte]) if byte < 255 else b"" for byte in range(256)] + [b"</s>"]

    def __call__(self, text: bytes) -> list[int]:
        """Return the ids of a text."""
        return list(text)


def _check(source: str, limits: dict[str, Any], messages: list[str]) -> None:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

    vocabulary: Any = ByteVocabulary()
    matcher = LLMatcher(LLTokenizer(vocabulary), source, log_level=0, limits=LLParserLimits(**limits))
    if not matcher.is_error():
        matcher.compute_bitmask()
    messages.append(matcher.get_error())


def main() -> None:
    """Read a grammar from standard input."""
    folder, seconds, most_bytes, limits = sys.argv[1:]
    sys.path.insert(0, folder)
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        resource.setrlimit(resource.RLIMIT_AS, (int(most_bytes), int(most_bytes)))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass  # not on this system; the caller limits the time
    messages: list[str] = []
    source = sys.stdin.buffer.read().decode()
    threading.stack_size(_STACK)
    thread = threading.Thread(target=_check, args=(source, json.loads(limits), messages))
    thread.start()
    thread.join()
    if not messages:
        sys.exit(1)
    sys.stdout.buffer.write(messages[0][:_LONGEST].encode())


if __name__ == "__main__":
    main()
