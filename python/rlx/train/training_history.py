"""`TrainingHistory`: losses and metrics of a training, as a list of entries and as curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, SupportsIndex, overload

from rlx.ir.calls import with_call_errors
from rlx.support.errors import Error
from rlx.support.packages import import_package
from rlx.support.suggestions import suggestion

Entry = dict[str, Any]
_POSITIONS = ("epoch", "step")


class TrainingHistory(list[Entry]):
    """The entries of a training, in order: `{"step": 45, "loss": 0.31, …}`.

    `history[-1]` is the last entry, and `history["val_loss"]` the list of all values of a name. In notebooks, it is shown
    as curves.

    Attributes:
        stopped_epoch: The epoch in which `patience` ended the training, from 1; None if it did not.
    """

    @with_call_errors
    def __init__(self, entries: Iterable[Entry] = ()):
        super().__init__(entries)
        self.stopped_epoch: int | None = None

    @property
    def best(self) -> Entry | None:
        """The first entry with the smallest finite `val_loss`; None if there is none."""
        validated = [entry for entry in self if math.isfinite(entry.get("val_loss", math.nan))]
        return min(validated, key=lambda entry: entry["val_loss"], default=None)

    @property
    def best_epoch(self) -> int | None:
        """The epoch with the smallest `val_loss`, from 1. None without one, and for a `TrainStep`, whose entries are steps."""
        best = self.best
        return None if best is None else best.get("epoch")

    @overload
    def __getitem__(self, key: SupportsIndex) -> Entry: ...
    @overload
    def __getitem__(self, key: slice) -> list[Entry]: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    def __getitem__(self, key: Any) -> Any:
        """Return an entry by position, or the values of a name, of the entries that have it.

        Raises:
            Error: No entry has the name.
        """
        if not isinstance(key, str):
            return super().__getitem__(key)
        values = [entry[key] for entry in self if key in entry]
        if not values:
            names = list(dict.fromkeys(name for entry in self for name in entry))
            raise Error(f"the history has no '{key}'{suggestion(key, names)}; it has {', '.join(names) or 'no entry'}")
        return values

    @property
    def history(self) -> dict[str, list[Any]]:
        """The values of each name, as the attribute of Keras' `History`."""
        return {name: self[name] for name in self.names()}

    @with_call_errors
    def names(self) -> list[str]:
        """Return the names of numbers, without `epoch` and `step`."""
        found = dict.fromkeys(n for entry in self for n, v in entry.items() if isinstance(v, Real))
        return [name for name in found if name not in _POSITIONS]

    @with_call_errors
    def axis(self) -> str:
        """Return the name of the horizontal axis: `epoch` if each entry is one, else `step`."""
        return "epoch" if self and all("epoch" in entry for entry in self) else "step"

    @with_call_errors
    def curve(self, name: str) -> tuple[list[float], list[float]]:
        """Return the positions and values of the entries that have a name."""
        axis = self.axis()
        pairs = [(float(e[axis]), float(e[name])) for e in self if name in e]
        return [x for x, _ in pairs], [y for _, y in pairs]

    @with_call_errors
    def panels(self, names: Sequence[str] | None = None) -> dict[str, list[str]]:
        """Return the curves of each panel of a drawing: a name, and that name with `val_` before it.

        Raises:
            Error: The history is empty, or has no such name.
        """
        known = self.names()
        if not known:
            raise Error("the history has no entry to draw", hint="train with fit first")
        for name in names or ():
            if name not in known:
                raise Error(f"the history has no '{name}'{suggestion(name, known)}; it has {', '.join(known)}")
        chosen = list(names) if names is not None else [n for n in known if n not in ("learning_rate", "seconds")]
        panels: dict[str, list[str]] = {}
        for name in chosen:
            panels.setdefault(name.removeprefix("val_"), []).append(name)
        return panels

    @with_call_errors
    def plot(self, names: Sequence[str] | None = None, *, path: Any = None) -> Any:
        """Draw the curves with matplotlib.

        Args:
            names: The numbers to draw; all but the learning rate by default. A number and its `val_` share a panel.
            path: A file to write the picture to: `curves.png`, `curves.svg`.

        Returns:
            The `matplotlib.figure.Figure`, which notebooks show.

        Raises:
            Error: matplotlib is not installed, or the history has no such number.
        """
        figure_module = import_package("matplotlib.figure", "history.plot()")
        panels = self.panels([names] if isinstance(names, str) else names)
        columns = min(len(panels), 3)
        rows = -(-len(panels) // columns)
        figure = figure_module.Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
        places = figure.subplots(rows, columns, squeeze=False).flat
        for place, (title, curves) in zip(places, panels.items(), strict=False):
            for name in curves:
                xs, ys = self.curve(name)
                is_validation = name.startswith("val_")
                label = "validation" if is_validation else "training"
                place.plot(
                    xs,
                    ys,
                    label=label,
                    color="C1" if is_validation else "C0",
                    marker="o" if len(xs) < 30 else None,
                    ms=3,
                )
            place.set(title=title, xlabel=self.axis())
            place.xaxis.get_major_locator().set_params(integer=True)
            place.grid(alpha=0.3)
            if len(curves) > 1:
                place.legend()
        for place in list(places):
            place.set_visible(False)
        if path is not None:
            save_figure(figure, path)
        return figure

    @with_call_errors
    def svg(self) -> str:
        """Return the curves as an SVG document, which needs no other package.

        Raises:
            Error: The history is empty.
        """
        from rlx.train.curves_svg import curves_drawing

        return curves_drawing(self)

    def _repr_html_(self) -> str | None:
        from rlx.train.curves_svg import curves_html

        return curves_html(self) if self.names() else None


def save_figure(figure: Any, path: Any) -> None:
    """Write a figure of matplotlib to a file.

    Raises:
        Error: The file cannot be written.
    """
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError, TypeError) as problem:
        raise Error(f"cannot write the picture {path!r}: {problem}") from None
