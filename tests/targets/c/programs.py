"""C programs with embedded inputs and expected outputs, for compilers and sanitizers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import rlx
from rlx.targets.c import toolchain
from rlx.targets.c.host import SOURCE, harness
from rlx.targets.c.lower.files import files_of
from rlx.targets.c.lower.program import CSource


def program_of(graph: rlx.Graph, target: str = "cortexm") -> CSource:
    """The program of a graph."""
    return CSource(rlx.Pipeline(target=target).compile(graph).lir)


def _bytes(name: str, array: np.ndarray) -> str:
    data = np.ascontiguousarray(array).tobytes() or b"\0"
    return f"static const unsigned char {name}[] = {{{', '.join(map(str, data))}}};"


def main_of(program: CSource, inputs: Mapping[str, np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """A main function that calls a program once, with memory of exactly the required sizes, and compares the results."""
    arrays = [inputs[a.name] for a, _ in program.arguments if a.kind == "input"]
    lines = ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>", "#include <stddef.h>"]
    lines += ["extern const size_t rlx_layout[];", "void rlx_init(void *state);"]
    lines += ["void rlx_call(void *, const void *const *, const void *const *, void *const *);"]
    lines += [_bytes(f"x{i}", a) for i, a in enumerate(arrays)] + [_bytes(f"y{i}", a) for i, a in enumerate(expected)]
    lines += ["int main(void) {", "void *state = malloc(rlx_layout[0]);", "int wrong = 0;"]
    lines += [f"void *in[{len(arrays) + 1}]; void *out[{len(expected) + 1}]; const void *none[1] = {{0}};"]
    for kind, name, count in (("in", "x", len(arrays)), ("out", "y", len(expected))):
        for i in range(count):
            lines.append(f"{kind}[{i}] = malloc(sizeof {name}{i});")
            lines.append(
                f"memcpy({kind}[{i}], x{i}, sizeof x{i});" if kind == "in" else f"memset(out[{i}], 90, sizeof y{i});"
            )
    lines += ["memset(state, 165, rlx_layout[0]);", "rlx_init(state);"]
    lines += ["rlx_call(state, none, (const void *const *)in, (void *const *)out);"]
    for i, array in enumerate(expected):
        size = f"{array.nbytes}"
        lines.append(f'if (memcmp(out[{i}], y{i}, {size})) {{ printf("output {i} differs\\n"); wrong = 1; }}')
    for kind, count in (("in", len(arrays)), ("out", len(expected))):
        lines += [f"free({kind}[{i}]);" for i in range(count)]
    return "\n".join([*lines, "free(state);", "return wrong;", "}", ""])


def write(program: CSource, folder: Path, main: str = "") -> list[str]:
    """Write the files of a program, and return the names of its sources."""
    files = {**files_of(program), **({SOURCE: harness(program), "main.c": main} if main else {})}
    for name, text in files.items():
        (folder / name).write_text(text)
    return [name for name in files if name.endswith(".c")]


def run_sanitized(
    program: CSource, folder: Path, inputs: Mapping[str, np.ndarray], expected: Sequence[np.ndarray]
) -> None:
    """Run a program under the sanitizers of the compiler of this machine."""
    sources = write(program, folder, main_of(program, inputs, expected))
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    toolchain.build(["cc", "-std=c99", "-O1", "-g", *sanitizers, *sources, "-o", "checked", "-lm"], folder)
    result = subprocess.run([folder / "checked"], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
