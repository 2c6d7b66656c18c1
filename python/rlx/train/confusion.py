"""`ConfusionMatrix`: the numbers of samples of each actual and predicted class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.calls import Answered
from rlx.support.errors import Error
from rlx.support.packages import import_package
from rlx.support.printable import printable
from rlx.train.training_history import save_figure


class ConfusionMatrix(Answered):
    """The numbers of samples of each class, by the class that was predicted.

    Args:
        counts: `counts[i, j]` samples of class `i` were predicted as class `j`, as in scikit-learn; `[C, C]` integers.
        names: The names of the classes; their numbers by default.
        pooled: The number of labels of each sample that are counted together, for samples with several labels of 0 or 1;
            None if each sample is counted once.

    Raises:
        Error: The counts are not a square matrix, or there is another number of names.
    """

    def __init__(self, counts: np.ndarray, names: Sequence[str] | None = None, *, pooled: int | None = None):
        if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not len(counts):
            raise Error(f"counts must be a square matrix, got {list(counts.shape)}")
        self.counts, self.pooled = counts, pooled
        self.names = tuple(map(str, range(len(counts)) if names is None else names))
        if len(self.names) != len(counts):
            raise Error(f"names has {len(self.names)} names for {len(counts)} classes")

    @property
    def accuracy(self) -> float:
        """The share of samples on the diagonal."""
        total = self.counts.sum()
        return float(np.trace(self.counts) / total) if total else float("nan")

    @property
    def unit(self) -> str:
        """The name of what is counted: `samples`, or `labels` if those of a sample are counted together."""
        return "samples" if self.pooled is None else "labels"

    @property
    def pooling(self) -> str:
        """The text for labels that are counted together: `the 3 labels of each sample are pooled`; else empty."""
        return "" if self.pooled is None else f"the {self.pooled} labels of each sample are pooled"

    def plot(self, *, path: Any = None) -> Any:
        """Draw the matrix with matplotlib.

        Args:
            path: A file to write the picture to.

        Returns:
            The `matplotlib.figure.Figure`, which notebooks show.

        Raises:
            Error: matplotlib is not installed.
        """
        figure_module = import_package("matplotlib.figure", "ConfusionMatrix.plot()")
        count = len(self.counts)
        size = min(max(2.5 + 0.42 * count, 3.5), 14)
        figure = figure_module.Figure(figsize=(size + 0.8, size), layout="constrained")
        place = figure.subplots()
        image = place.imshow(self.shares(), cmap="Blues", vmin=0, vmax=1)
        figure.colorbar(image, ax=place, label="share of the class", shrink=0.8)
        place.set(
            xlabel="predicted", ylabel="actual", title="\n".join([f"accuracy {self.accuracy:.1%}", *self._notes()])
        )
        places = range(count)
        if count <= 40:
            place.set_xticks(places, self.names, rotation=90 if max(map(len, self.names)) > 3 else 0)
            place.set_yticks(places, self.names)
        if count <= 25:
            for i, row in enumerate(self.shares()):
                for j, share in enumerate(row):
                    colour = "white" if share > 0.5 else "black"
                    place.text(j, i, self.counts[i, j], ha="center", va="center", color=colour, fontsize=8)
        if path is not None:
            save_figure(figure, path)
        return figure

    def shares(self) -> np.ndarray:
        """Return the counts divided by those of the actual class; zeros for a class without samples."""
        totals = self.counts.sum(1, keepdims=True)
        return np.divide(self.counts, totals, out=np.zeros(self.counts.shape), where=totals > 0)

    def svg(self) -> str:
        """Return the matrix as an SVG document, which needs no other package."""
        from rlx.train.curves_svg import matrix_drawing

        return matrix_drawing(self, alone=True)

    def _repr_html_(self) -> str:
        from rlx.train.curves_svg import matrix_html

        return matrix_html(self)

    def _notes(self) -> list[str]:
        return [self.pooling] if self.pooling else []

    def __str__(self) -> str:
        shown = [printable(name, keep="") for name in self.names]
        cells = [[str(n) for n in row] for row in self.counts]
        width = max(len(text) for text in (*shown, *(c for row in cells for c in row)))
        left = max(*(len(n) for n in shown), len("actual"))
        header = " ".join([f"{'actual':{left}} |", *(f"{n:>{width}}" for n in shown)])
        lines = [
            " ".join([f"{n:{left}} |", *(f"{c:>{width}}" for c in row)]) for n, row in zip(shown, cells, strict=True)
        ]
        return "\n".join([", ".join([f"predicted →, accuracy {self.accuracy:.1%}", *self._notes()]), header, *lines])

    def __repr__(self) -> str:
        return f"<ConfusionMatrix of {len(self.counts)} classes, {int(self.counts.sum())} {self.unit}>"
