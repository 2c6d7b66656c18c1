"""Saving, pickling and display of compiled programs."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.interface import Argument
from rlx.runtime.arguments import unset_params
from rlx.runtime.content import Content
from rlx.support.errors import Error
from rlx.support.files import file_name
from rlx.support.locks import holding
from rlx.targets.artifacts.archive import Archive
from rlx.targets.artifacts.artifact import Artifact

if TYPE_CHECKING:
    from rlx.report.tuning import TuningReport


class SavedProgram:
    """The part of `CompiledGraph` for saving and display."""

    artifact: Artifact
    phases: Mapping[str, float]
    tuning: TuningReport | None
    _threads: int | None
    _params: Mapping[str, Argument]
    _states: Mapping[str, Argument]
    _lock: Any
    _content: Content
    _settle: Callable[[], None]

    def save(
        self,
        path: str | os.PathLike[str],
        *others: SavedProgram,
        params: bool = False,
        params_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write the program to a file for `rlx.load`, `rlx.deploy.load` and `rlx run`, completely or not at all.

        Args:
            path: The file; its name usually ends with `.rlxa`.
            others: Programs of the same graph for other targets or architectures. Loading selects the one for the
                machine.
            params: True writes the weights of this program into the file, up to 2 GiB.
            params_file: A file to write the weights to, in IREE's format (`.irpa`). The program refers to it by name
                and hash, and the file must be in the same folder.

        Raises:
            Error: A file cannot be written, the programs have other inputs or outputs, or a weight has not been set.
        """
        archive = Archive.of({None: [self.artifact, *(_artifact_of(other) for other in others)]})
        if params or params_file is not None:
            archive = archive.with_parameters(file_name(path), self._set_weights(), params_file)
        archive.save(file_name(path))

    def _set_weights(self) -> dict[str, np.ndarray]:
        self._settle()
        weights, _ = holding(self._lock, self._values)
        if missing := [argument for name, argument in self._params.items() if name not in weights]:
            raise unset_params(missing)
        return weights

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the artifact, with weights and current states, as a separate program."""
        self._settle()
        weights, states = holding(self._lock, self._values)
        return type(self)._restored, (self.artifact.to_bytes(), self._threads, weights, states, self.tuning)

    @classmethod
    def _restored(cls, artifact: bytes, threads: Any, weights: Any, states: Any, tuning: Any) -> SavedProgram:
        """Restore a pickled program. As for files, whether this machine can run it is checked when it is loaded."""
        build: Any = cls
        compiled = build(Artifact.from_bytes(artifact, "the pickled program"), threads=threads)
        compiled._content, compiled.tuning = Content(weights, states), tuning
        return compiled

    def _values(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        content = self._content
        if content.program is None:
            return dict(content.weights), dict(content.states)
        return dict(content.weights), {name: content.program.read_state(name) for name in self._states}

    def _repr_html_(self) -> str | None:
        if importlib.util.find_spec("rlx.report.html") is None:  # the distribution for running programs has no pages
            return None
        from rlx.runtime.display import program_html

        return program_html(self.artifact, self._content.weights, self.phases)

    def __repr__(self) -> str:
        from rlx.runtime.display import program_line

        return program_line(self.artifact, self._content.weights)


def _artifact_of(program: Any) -> Artifact:
    if not isinstance(program, SavedProgram):
        raise Error(
            f"expected a compiled program, got {type(program).__name__}", hint="take what Session.compile gives"
        )
    return program.artifact
