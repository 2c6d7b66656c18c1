"""Display of compiled programs in prompts and notebooks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rlx.report.text import bytes_text
from rlx.support.printable import printable
from rlx.support.short import join_names
from rlx.targets.artifacts.artifact import Artifact


def program_line(artifact: Artifact, given: Collection[str]) -> str:
    """Return a program in one line; `given` are the names of the parameters that are set."""
    signature, names = artifact.signature, [a.name for a in artifact.signature.of_kind("param")]
    inputs = join_names(f"{a.name}: {a.shape}" for a in signature.arguments if a.kind != "param")
    outputs = join_names(f"{o.name}: {o.shape}" for o in signature.outputs)
    count, known = len(names), sum(name in given for name in names)
    params = f"; {count} parameter{'s' if count > 1 else ''}, {'all' if known == count else known} set" if count else ""
    size = f"{artifact.target} ({artifact.arch}), {bytes_text(len(artifact.program))}"
    return printable(f"<CompiledGraph {signature.name}({inputs}{params}) -> {outputs} for {size}>", keep="")


def program_html(artifact: Artifact, given: Collection[str], phases: Mapping[str, float]) -> str:
    """Return a program as HTML.

    Args:
        artifact: The program.
        given: The names of the parameters that are set.
        phases: Seconds of each compile phase.
    """
    from rlx.report import html

    signature = artifact.signature
    rows = [(a.kind, a.name, str(a.shape)) for a in signature.arguments if a.kind != "param"]
    rows += [("output", o.name, str(o.shape)) for o in signature.outputs]
    params = [(a.name, str(a.shape), "set" if a.name in given else "not set") for a in signature.of_kind("param")]
    weights = html.table(params, ("parameter", "shape", ""), most=100)
    times = [(name, f"{1e3 * seconds:.4g} ms") for name, seconds in phases.items() if name != "cached"]
    parts = [html.table(rows, ("", "name", "shape"))]
    parts += [html.details(f"{len(params)} parameters", weights)] if params else []
    parts += [html.details("Time of compiling", html.table(times, ("phase", "time"), right=(1,)))] if times else []
    size = bytes_text(len(artifact.program))
    return html.fragment(f"@{signature.name} for {artifact.target} ({artifact.arch}), {size}", "".join(parts))
