"""Display of compiled programs in prompts and notebooks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rlx.report.text import bytes_text
from rlx.runtime.entry_point import EntryPoint
from rlx.support.printable import printable
from rlx.support.short import join_names


def program_text(entries: Mapping[str | None, EntryPoint], weights: Collection[str]) -> str:
    """Return a program as text: one line, and with several entry points a line for each.

    Args:
        entries: The entry points, by name.
        weights: The names of the parameters that are set.
    """
    if len(entries) == 1:
        ((name, entry),) = entries.items()
        return printable(f"<Program {'' if name is None else f'{name}: '}{_entry_line(entry, weights)}>", keep="")
    arguments = {a.name: a for entry in entries.values() for a in entry.signature.arguments}
    params = _params_text([a.name for a in arguments.values() if a.kind == "param"], weights)
    shared = [f"{a.name}: {a.shape}" for a in arguments.values() if a.kind == "state"]
    states = f"; states {join_names(shared)}" if shared else ""
    head = f"<Program with entry points {', '.join(map(str, entries))}{params}{states}"
    lines = [head, *(f"{name}: {_entry_line(entry, weights)}" for name, entry in entries.items())]
    return "\n  ".join(printable(line, keep="") for line in lines) + ">"


def _params_text(names: Collection[str], weights: Collection[str]) -> str:
    count, known = len(names), sum(name in weights for name in names)
    return f"; {count} parameter{'s' if count > 1 else ''}, {'all' if known == count else known} set" if count else ""


def _entry_line(entry: EntryPoint, weights: Collection[str]) -> str:
    signature = entry.signature
    inputs = join_names(f"{a.name}: {a.shape}" for a in signature.arguments if a.kind != "param")
    outputs = join_names(f"{o.name}: {o.shape}" for o in signature.outputs)
    params = _params_text([a.name for a in signature.of_kind("param")], weights)
    return f"{signature.name}({inputs}{params}) -> {outputs} for {_code_text(entry)}"


def _code_text(entry: EntryPoint) -> str:
    """Return the target, the size of the code and the buckets."""
    artifacts = [function.artifact for function in entry.functions.values()]
    buckets = f", with buckets {entry.buckets}" if entry.buckets is not None else ""
    size = bytes_text(sum(len(artifact.program) for artifact in artifacts))
    return f"{artifacts[0].target} ({artifacts[0].arch}), {size}{buckets}"


def program_html(
    entries: Mapping[str | None, EntryPoint], weights: Collection[str], phases: Mapping[str, float]
) -> str:
    """Return a program as HTML.

    Args:
        entries: The entry points, by name.
        weights: The names of the parameters that are set.
        phases: Seconds of each compile phase.
    """
    from rlx.report import html

    times = [(name, f"{1e3 * seconds:.4g} ms") for name, seconds in phases.items() if name != "cached"]
    end = html.details("Time of compiling", html.table(times, ("phase", "time"), right=(1,))) if times else ""
    if len(entries) == 1:
        (entry,) = entries.values()
        return html.fragment(_title(entry), _entry_html(entry, weights) + end)
    parts = [html.details(f"{name}: {_title(entry)}", _entry_html(entry, weights)) for name, entry in entries.items()]
    return html.fragment(f"Program with entry points {', '.join(map(str, entries))}", "".join(parts) + end)


def _title(entry: EntryPoint) -> str:
    return f"@{entry.signature.name} for {_code_text(entry)}"


def _entry_html(entry: EntryPoint, weights: Collection[str]) -> str:
    from rlx.report import html

    signature = entry.signature
    rows = [(a.kind, a.name, str(a.shape)) for a in signature.arguments if a.kind != "param"]
    rows += [("output", o.name, str(o.shape)) for o in signature.outputs]
    params = [(a.name, str(a.shape), "set" if a.name in weights else "not set") for a in signature.of_kind("param")]
    table = html.table(params, ("parameter", "shape", ""), most=100)
    return html.table(rows, ("", "name", "shape")) + (
        html.details(f"{len(params)} parameters", table) if params else ""
    )
