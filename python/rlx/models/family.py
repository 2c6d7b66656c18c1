"""Families of models: how the configuration is read, and how the graph is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.fields import Fields
from rlx.weights import Weight


class Config(Protocol):
    """The part of a configuration that all families share."""

    @property
    def num_hidden_layers(self) -> int:
        """The number of layers."""
        ...


class Encode(Protocol):
    """A function from token ids, mask `[B, S]` and optional token types to token representations `[B, S, E]`."""

    def __call__(
        self, scope: ParameterPrefix, config: Any, ids: Tensor, mask: Tensor, types: Tensor | None = None
    ) -> Tensor:
        """Build them in the scope's graph."""
        ...


@dataclass(frozen=True)
class ModelFamily:
    """A family of models.

    Attributes:
        model_type: Its name in `config.json`.
        config: Reads the configuration; raises `Error`.
        build: Adds inputs and parameters to a graph, and returns its outputs by name. The last argument has a value for
            each of `sizes`.
        sizes: The arguments of `Model.graph`, with defaults: sizes (integers or names of symbols) and options.
        layers: The prefix of the tensors of layers, before the number.
        prefixes: The possible prefixes of the base model's tensors in a checkpoint.
        encode: For text encoders: the function from token ids to token representations.
        adapted: Returns the tensors of a folder under the names of graphs, for a configuration; None if they have them.
        prediction_head: Like `build`, for the graph of a head that predicts further tokens; None if models have none.
    """

    model_type: str
    config: Callable[[Fields], Config]
    build: Callable[[ParameterPrefix, Any, Mapping[str, Any]], dict[str, Tensor]]
    sizes: Mapping[str, int | bool | str]
    layers: str
    prefixes: tuple[str, ...] = ()
    encode: Encode | None = field(default=None)
    adapted: Callable[[Mapping[str, Weight], Any], Mapping[str, Weight]] | None = field(default=None)
    prediction_head: Callable[[ParameterPrefix, Any, Mapping[str, Any]], dict[str, Tensor]] | None = field(default=None)
