"""Models: published weights in the graphs they belong to.

`load` reads a folder as it is published on the Hugging Face hub. A family of models is one file with a table `FAMILIES`: how
its `config.json` is read, and how its graph is built of the parts that all share.
"""

from __future__ import annotations

import rlx.blocks  # noqa: F401  (whole before its parts: see passes/__init__.py)
from rlx.models.model import PretrainedModel, load

__all__ = ["PretrainedModel", "load"]
