"""Families of models: how the configuration is read, and how the graph is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from rlx.ir.graph.builder import Tensor
from rlx.ir.op.attributes import suggestion
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.fields import Fields
from rlx.support.errors import Error
from rlx.weights import Weight


class Config(Protocol):
    """The part of a configuration that all families share."""

    @property
    def num_hidden_layers(self) -> int:
        """The number of layers."""
        ...

    @property
    def max_length(self) -> int | None:
        """The largest number of tokens that have positions; None if there is no limit. Of two stacks, that of the encoder."""
        ...


class Encode(Protocol):
    """A function from token ids, mask `[B, S]` and optional token types to token representations `[B, S, E]`."""

    def __call__(
        self, scope: ParameterPrefix, config: Any, ids: Tensor, mask: Tensor, types: Tensor | None = None
    ) -> Tensor:
        """Build them in the scope's graph."""
        ...


@dataclass(frozen=True)
class TaskHead:
    """A head: the layers after the base model that compute the results of a task.

    Attributes:
        build: Adds the parameters of the head to a graph, and returns its outputs by name. The last argument is the states
            of the base model, `[B, S, E]`. The inputs of the graph have the names of the family.
        layers: The layers that a checkpoint with this head has, by their names without `.weight`.
        labels: The layer with a row for each label; None if the head has no labels.
        has_pooler: Whether the head uses the pooler of the base model.
    """

    build: Callable[[ParameterPrefix, Any, Tensor], dict[str, Tensor]]
    layers: tuple[str, ...]
    labels: str | None = None
    has_pooler: bool = False


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
        states: Like `build`, for the base model without its pooler: the output is `last_hidden_state`. None if `build` does
            the same for a configuration without a head.
        heads: The heads, by the end of the class of a checkpoint: `"ForSequenceClassification"`.
        default_head: The head of checkpoints that name neither a class nor have tensors of another head.
        encoder: Like `build`, for the graph of the encoder of an encoder–decoder model; None for other models.
        encoder_sizes: The arguments of that graph, with defaults.
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
    states: Callable[[ParameterPrefix, Any, Mapping[str, Any]], dict[str, Tensor]] | None = None
    heads: Mapping[str, TaskHead] = field(default_factory=lambda: MappingProxyType({}))
    default_head: str | None = None
    encoder: Callable[[ParameterPrefix, Any, Mapping[str, Any]], dict[str, Tensor]] | None = None
    encoder_sizes: Mapping[str, int | bool | str] = field(default_factory=lambda: MappingProxyType({}))
    prediction_head: Callable[[ParameterPrefix, Any, Mapping[str, Any]], dict[str, Tensor]] | None = field(default=None)


def checked_sizes(
    model_type: str, defaults: Mapping[str, int | bool | str], sizes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the sizes of a graph: those of the caller, and defaults for others.

    Args:
        model_type: The name of the family, for messages.
        defaults: The sizes that the graph has, with defaults.
        sizes: Those of the caller.

    Raises:
        Error: A size is unknown, or its value is not valid.
    """
    for name, value in sizes.items():
        if name not in defaults:
            known = ", ".join(f"{n}={v}" for n, v in defaults.items())
            raise Error(f"graph has no size '{name}'{suggestion(name, defaults)}; a {model_type} has {known}")
        default = defaults[name]
        if isinstance(default, (bool, str)):
            if type(value) is not type(default):
                expected = "True or False" if isinstance(default, bool) else f"a name such as {default!r}"
                raise Error(f"graph: '{name}' must be {expected}, got {value!r:.60}")
        elif not isinstance(value, str) and (type(value) is not int or value < min(default, 1)):
            least = min(default, 1)
            raise Error(
                f"graph: '{name}' must be an integer of at least {least} or the name of a symbol, got {value!r:.60}"
            )
    return {**defaults, **sizes}
