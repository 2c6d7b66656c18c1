"""What a family of models is: how its configuration is read, and how its graph is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.fields import Fields


class Config(Protocol):
    """What is read of a configuration, in all families."""

    @property
    def num_hidden_layers(self) -> int:
        """The number of layers."""
        ...


class Encode(Protocol):
    """Token representations `[B, S, E]` of token ids and mask `[B, S]`, and kinds of tokens where a model has them."""

    def __call__(
        self, scope: ParameterPrefix, config: Any, ids: Tensor, mask: Tensor, types: Tensor | None = None
    ) -> Tensor:
        """Build them in the scope's graph."""
        ...


@dataclass(frozen=True)
class ModelFamily:
    """A family of models.

    Attributes:
        model_type: What `config.json` calls it.
        config: Reads the configuration; raises `Error`.
        build: Adds inputs and parameters to a graph, and returns its outputs by name. The last argument has a value for each of
            `sizes`.
        sizes: What users may give to `Model.graph`, with defaults: sizes (integers or names of symbols) and options.
        layers: What tensors of layers are called, before the number.
        prefixes: What the names of the base model's tensors may begin with in a checkpoint.
        encode: For encoders of text: from token ids to token representations.
    """

    model_type: str
    config: Callable[[Fields], Config]
    build: Callable[[ParameterPrefix, Any, Mapping[str, Any]], dict[str, Tensor]]
    sizes: Mapping[str, int | bool]
    layers: str
    prefixes: tuple[str, ...] = ()
    encode: Encode | None = field(default=None)
