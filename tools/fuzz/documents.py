"""Structured damage of JSON values: another value of any type at any position."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 64, 65, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63), 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1e300, -1.5, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        " ",
        "a",
        "x",
        "n",
        "n+1",
        "2*n",
        "-n",
        "n//0",
        "n%m",
        "max(n,m)",
        "n**9",
        "(" * 300,
        "a" * 70000,
        "\0",
        "\ud800",
    ),
    *(
        "é",
        "main",
        "input",
        "param",
        "state",
        "f32",
        "bf16",
        "c64",
        "bool",
        "float32",
        "complex128",
        "../x",
        "%s{}",
        "\n",
    ),
    *("cpu", "xla", "cuda", "hip", "stablehlo", "rlx", "host", "x86-64", "default", "portable", "0", "1e5", "true"),
    *("xla_dump_to", "xla_cpu_prefer_vector_width", "xla_backend_optimization_level", "/tmp/x", "lambda: 0"),
    *([], {}, [[]], [None], [0], ["n"], {"a": 1}, [[[[[[]]]]]], [1, 2, 3], ["n", "m", 4], list(range(100))),
)


def mutated(document: Any, rng: random.Random) -> Any:
    """Return a copy of a JSON value with some values, entries or elements changed."""
    holder = {"": copy.deepcopy(document)}
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3, 6))):
        container, key = rng.choice(places(holder))
        _change(container, key, rng, holder)
    return holder[""]


def places(document: Any) -> list[tuple[Any, Any]]:
    """Return every position in a JSON value, as a container and a key or an index."""
    found, level = [], [document]
    while level:
        container = level.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], (dict, list)):
                level.append(container[key])
    return found


def _change(container: Any, key: Any, rng: random.Random, whole: Any) -> None:
    value = container[key]
    match rng.randrange(8):
        case 0 if isinstance(container, list):
            container.insert(key, copy.deepcopy(rng.choice((value, rng.choice(_VALUES)))))
        case 1 if key != "":
            del container[key]
        case 2 if isinstance(container, dict) and key != "":
            container[rng.choice(("", "x", "name", key + "x", "sha256"))] = container.pop(key)
        case 3 if isinstance(value, int) and not isinstance(value, bool):
            container[key] = value + rng.choice((-1, 1, 2, 64, -value, value))
        case 4 if isinstance(value, str) and value:
            at = rng.randrange(len(value))
            container[key] = value[:at] + rng.choice(("", "x", "0", "-", "(", "é", value)) + value[at + 1 :]
        case 5:  # a value from another position
            other, place = rng.choice(places(whole))
            container[key] = copy.deepcopy(other[place])
        case 6 if isinstance(value, list) and len(value) > 1:
            rng.shuffle(value)
        case _:
            container[key] = copy.deepcopy(rng.choice(_VALUES))


def written(document: Any, rng: random.Random) -> bytes:
    """Return a JSON value as text, sometimes with errors."""
    try:
        text = json.dumps(document, ensure_ascii=rng.random() < 0.9)
    except ValueError:  # the integer is too large for text
        return b'{"a": ' + b"9" * 5000 + b"}"
    match rng.randrange(30):
        case 0:
            depth = rng.choice((100, 1000, 100_000))
            text = "[" * depth + text + "]" * depth
        case 1:
            text = text.replace("{", '{"x": 1, "x": 2, ', 1)
        case 2:
            text = text[: rng.randrange(len(text) + 1)]
        case 3:
            text = text.replace("1", rng.choice(("1e999", "Infinity", "1" * 5000, "01", "1.", "NaN")), 1)
    return text.encode("utf-8", "surrogatepass")
