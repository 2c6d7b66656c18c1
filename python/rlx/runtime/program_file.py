"""Conversion of the entry points of a program to and from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx.runtime.entry_point import EntryPoint
from rlx.support.errors import Error
from rlx.support.short import join_names
from rlx.targets.artifacts.archive import Archive

Entries = Mapping[str | None, EntryPoint]


def archive_of(entries: Entries, others: Sequence[Entries] = ()) -> Archive:
    """Return the content of a file with some entry points, without values of parameters.

    Args:
        entries: The entry points.
        others: The same entry points for other targets.

    Raises:
        Error: The others have different entry points, buckets or signatures, or two are for the same target.
    """
    for other in others:
        _check_alike(entries, other)
    return Archive.of({name: entry.stored([other[name] for other in others]) for name, entry in entries.items()})


def entries_of(
    archive: Archive, target: str | None = None, *, threads: Mapping[str | None, int | None] | int | None = None
) -> dict[str | None, EntryPoint]:
    """Return the entry points of a file, with the programs for this machine.

    Args:
        archive: The content of the file.
        target: The name of the only target to choose from.
        threads: Threads that all programs may use on the CPU, or those of each entry point.

    Raises:
        Error: This machine cannot run an entry point.
    """
    each = threads if isinstance(threads, Mapping) else dict.fromkeys(archive.entries, threads)
    return {name: EntryPoint.of_stored(archive.entry(name), target, each[name]) for name in archive.entries}


def _check_alike(entries: Entries, other: Entries) -> None:
    """Check that two programs have the same entry points and buckets.

    Raises:
        Error: They differ.
    """
    if set(entries) != set(other):
        raise Error(f"expected {_described(entries)}, got {_described(other)}")
    for name, entry in entries.items():
        if entry.buckets != other[name].buckets:
            has = [f"the buckets {e.buckets}" if e.buckets is not None else "no buckets" for e in (entry, other[name])]
            raise Error(f"expected a program with {has[0]}, got one with {has[1]}")


def _described(entries: Entries) -> str:
    names = [name for name in entries if name is not None]
    return f"a program with the entry points {join_names(names)}" if names else "a program of a single graph"
