"""The tensors of a checkpoint, by the parameter names of graphs, and `ParameterPrefix`, which declares parameters.

Names vary between checkpoints. In a checkpoint of a whole model, the tensors of the base model have a prefix (`bert.`,
`model.`). In a checkpoint of the base model, they do not. Old checkpoints name the weights of norms `gamma` and `beta`.
Graphs always use the names of the base model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx.ir.dtype import DTYPES, f32, i32, u8
from rlx.ir.graph.builder import Tensor
from rlx.ir.shape import Shape
from rlx.models.low_rank import LowRankUpdate
from rlx.ops.contraction.contraction import READ_IN_PLACE
from rlx.schemes import find_scheme
from rlx.schemes.layouts import FloatLayout
from rlx.support.errors import Error
from rlx.weights import PackedBlocks, PermutedBlocks, Weight

_NAMED = 10  # the largest number of problems in a message
# Dtypes whose values f32 can represent. A quantised model has integers with scales, which are not supported here.
_DTYPES = tuple(kind.numpy_name for kind in DTYPES if kind.is_float and kind.bits <= f32.bits)
_OLD_NAMES = ((".weight", ".gamma"), (".bias", ".beta"))
# Buffers that model implementations store with the weights. They can be computed, so they are not needed.
_BUFFERS = re.compile(r"(^|\.)(position_ids|inv_freq|masked_bias|attn\.bias|rotary_emb\.\w+)$")


class ModelTensors:
    """The tensors of a model's files.

    Args:
        tensors: The tensors by name.
        name: The name of the file or folder, for messages.
        prefixes: Prefixes that the tensors of the base model may have.
        shown: Returns the name of a tensor for messages, from that in graphs.

    Attributes:
        taken: The tensors that graphs have used, by their names in graphs.
        updates: Updates of matrices by adapters, by the name of the layer in graphs.
        updated: The layers whose updates graphs have used.
    """

    def __init__(
        self, tensors: Mapping[str, Weight], name: str, prefixes: Sequence[str], shown: Callable[[str], str] = str
    ):
        self.tensors, self.name, self._shown = tensors, name, shown
        self.prefix = next((p for p in prefixes if any(tensor.startswith(p) for tensor in tensors)), "")
        self.taken: dict[str, Weight] = {}
        self.updates: Mapping[str, Sequence[LowRankUpdate]] = {}
        self.updated: set[str] = set()
        self._files_names: set[str] = set()
        self._left_out: tuple[str, ...] = ()
        self._problems: list[str] = []

    def find(self, name: str) -> Weight | None:
        """Return the tensor that graphs call `name`; None if there is none."""
        key = self._key(name)
        return None if key is None else self.tensors[key]

    def _key(self, name: str) -> str | None:
        """Return the name in the file of the tensor that graphs call `name`; None if there is none."""
        for prefix in dict.fromkeys((self.prefix, "")):
            for new, old in ((name, name), *_OLD_NAMES):
                key = f"{prefix}{name.removesuffix(new)}{old}"
                if name.endswith(new) and key in self.tensors:
                    return key
        return None

    def take(self, name: str, shape: Shape) -> Weight | None:
        """Return the tensor for a parameter. If it is missing, or its shape or dtype is wrong, `check` reports it."""
        key = self._key(name)
        if key is None:
            self._problems.append(f"'{self._shown(name)}' ({shape}) is missing")
            return None
        weight = self.tensors[key]
        self._files_names.add(key)
        if weight.shape != shape.static or weight.dtype.name not in _DTYPES:
            self._problems.append(f"'{weight.name}' is {weight.dtype}{list(weight.shape)}, expected {shape}")
            return None
        self.taken[name] = weight
        return weight

    def leave_out(self, part: str) -> None:
        """Do not report the tensors of a part of the base model as unknown, because graphs do not need it."""
        self._left_out = (*self._left_out, f"{self.prefix}{part}.")

    def with_updates(self, updates: Mapping[str, Sequence[LowRankUpdate]]) -> ModelTensors:
        """Return the same tensors, with updates of matrices by adapters, by the name of the layer in graphs."""
        result = ModelTensors(self.tensors, self.name, (self.prefix,), self._shown)
        result.updates = updates
        return result

    def updates_of(self, layer: str) -> Sequence[LowRankUpdate]:
        """Return the updates of the matrix of a layer."""
        self.updated.add(layer)
        return self.updates.get(layer, ())

    def check_layers(self, num_layers: int) -> None:
        """Check that there are not more layers than tensors: building and comparing all of them would take too long.

        Raises:
            Error: There are more layers.
        """
        if num_layers > len(self.tensors):
            layers = f"num_hidden_layers is {num_layers}"
            raise Error(f"{self.name} does not fit its configuration: {layers}, and it has {len(self.tensors)} tensors")

    def check(self, layers: str, num_layers: int) -> tuple[str, ...]:
        """Check, after building a graph, that all its parameters exist and that no tensor of the base model is unused.

        Args:
            layers: The prefix of the tensors of layers, before the number: `"encoder.layer."`.
            num_layers: The number of layers.

        Returns:
            The names of other tensors, for example those of a head for another task.

        Raises:
            Error: Tensors are missing, have the wrong shape or dtype, or are unknown. The message names them.
        """
        left = [n for n in self.tensors if n not in self._files_names and not _BUFFERS.search(n)]
        own = [n for n in left if self._is_own(n)]
        pattern = re.compile(rf"{re.escape(self.prefix + layers)}(\d{{1,9}})\.")
        layer_of = {n: int(match[1]) for n in own if (match := pattern.match(n))}
        beyond = sorted({i for i in layer_of.values() if i >= num_layers})
        self._raise(
            *self._problems,
            *(
                f"there is a layer '{self._shown(f'{layers}{i}')}', but the configuration has {num_layers}"
                for i in beyond
            ),
            *(f"'{self.tensors[n].name}' is no tensor of this model" for n in own if layer_of.get(n, -1) < num_layers),
        )
        return tuple(n for n in left if not self._is_own(n))

    def check_taken(self) -> None:
        """Check, after building a graph, that all its parameters exist.

        Raises:
            Error: Tensors are missing, or have the wrong shape or dtype. The message names them.
        """
        self._raise(*self._problems)

    def _raise(self, *problems: str) -> None:
        """Raise an error, if there are problems."""
        if problems:
            more = f"\n  and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
            listed = "\n  ".join(problems[:_NAMED])
            raise Error(f"{self.name} does not fit its configuration:\n  {listed}{more}")

    def _is_own(self, name: str) -> bool:
        """Return whether a tensor belongs to the base model: it has the prefix or, without a prefix, a known first part."""
        if name.startswith(self._left_out):
            return False
        if self.prefix:
            return name.startswith(self.prefix)
        return name.split(".")[0] in {other.split(".")[0] for other in self._files_names}


class ParameterPrefix:
    """Parameters of a graph under a prefix.

    Args:
        g: The graph.
        checkpoint: The source of their values. Without it, parameters are f32 and have no value.
        prefix: The prefix of their names.
        activations: The precision of activations in products with packed weights.
        reads_in_place: Whether products with other weights are `matmul_transposed`, whose kernels read the weights where
            they are. Otherwise they are `matmul`, which takes a transposed copy and can be fused with biases and activations.
    """

    def __init__(
        self,
        g: Any,
        checkpoint: ModelTensors | None = None,
        prefix: str = "",
        *,
        activations: str = "f32",
        reads_in_place: bool = False,
    ) -> None:
        self.g, self.checkpoint, self.prefix = g, checkpoint, prefix
        self.activations, self.reads_in_place = activations, reads_in_place
        self._embeddings: dict[str, TokenEmbedding] = {}  # by full name, shared by all scopes of a graph

    def _like(self, prefix: str, activations: str) -> ParameterPrefix:
        result = ParameterPrefix(
            self.g, self.checkpoint, prefix, activations=activations, reads_in_place=self.reads_in_place
        )
        result._embeddings = self._embeddings
        return result

    def at(self, name: str) -> ParameterPrefix:
        """Return the scope of a part of the model."""
        return self._like(f"{self.prefix}{name}.", self.activations)

    def exact(self) -> ParameterPrefix:
        """Return the scope, without rounding of activations in products with packed weights."""
        return self._like(self.prefix, "f32")

    def has(self, name: str) -> bool:
        """Return whether the checkpoint has a tensor."""
        return self.checkpoint is not None and self.checkpoint.find(self.prefix + name) is not None

    def rows(self, name: str) -> int:
        """Return the number of rows of a matrix in the checkpoint, which the configuration lacks; 0 if there is none."""
        weight = None if self.checkpoint is None else self.checkpoint.find(self.prefix + name)
        return weight.shape[0] if weight is not None and len(weight.shape) == 2 else 0

    def param(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return a parameter as f32. A narrower float and packed blocks are stored as they are, and widened in the graph."""
        return self.stored(name, shape).widened(self.g)

    def stored(self, name: str, shape: tuple[int, ...]) -> StoredParameter:
        """Return a parameter as it is stored."""
        full_name = self.prefix + name
        weight = None if self.checkpoint is None else self.checkpoint.take(full_name, Shape(shape, "f32"))
        if weight is None:
            return StoredParameter(self.g.param(full_name, shape))
        encoding, order = weight.encoding, None
        if isinstance(encoding, PermutedBlocks):
            columns = np.array(encoding.order, np.int32)
            order = self.g.param(f"{full_name}.order", columns.shape, i32, value=columns)
            encoding = encoding.blocks
        if isinstance(encoding, PackedBlocks):
            rows = replace(weight, encoding=encoding).of_dtype(u8)
            return StoredParameter(self.g.param(full_name, rows.shape, u8, value=rows), encoding.scheme.name, order)
        return StoredParameter(self.g.param(full_name, shape, weight.dtype, value=weight))

    def table(self, name: str, rows: int, size: int) -> Tensor:
        """Return the table of an embedding."""
        return self.param(f"{name}.weight", (rows, size))

    def tokens(self, name: str, rows: int, size: int) -> TokenEmbedding:
        """Return the embedding of tokens, whose table is large: only the rows of the tokens are widened.

        Further calls for the same name return the same parameter: the logits of tied models are products with the table.
        """
        full_name = self.prefix + name
        if full_name not in self._embeddings:
            stored = self.stored(f"{name}.weight", (rows, size))
            self._embeddings[full_name] = TokenEmbedding(self, name, (rows, size), stored)
        return self._embeddings[full_name]

    def matrix(self, name: str, size_in: int, size_out: int) -> Tensor:
        """Return the weight of a linear layer, `[in, out]`; it is stored as `[out, in]`."""
        return self.g.transpose(self.param(f"{name}.weight", (size_out, size_in)))

    def dense(self, name: str, size_in: int, size_out: int) -> tuple[Tensor, Tensor]:
        """Return weight and bias of a linear layer."""
        return self.matrix(name, size_in, size_out), self.param(f"{name}.bias", (size_out,))

    def linear(self, x: Tensor, name: str, size_out: int, bias: bool = True) -> Tensor:
        """Return `x·w (+ bias)` over the last axis of `x`."""
        size_in: Any = x.shape.dims[-1]
        if self.reads_in_place or self.is_packed(name):
            product = self.products(x, self.stored(f"{name}.weight", (size_out, size_in)))
            product = product + self.param(f"{name}.bias", (size_out,)) if bias else product
        else:
            weights = self.dense(name, size_in, size_out) if bias else (self.matrix(name, size_in, size_out),)
            product = self.g.linear(x, *weights)
        return self.with_updates(product, x, name)

    def products(self, x: Tensor, stored: StoredParameter) -> Tensor:
        """Return the products of `x […, in]` with the rows of a matrix."""
        g = self.g
        if stored.scheme is not None:
            # Products of 8-bit floats are computed in f32 anyway: activations are not rounded for them.
            is_float = isinstance(find_scheme(stored.scheme).layout, FloatLayout)
            activations = "f32" if is_float else self.activations
            return g.dequant_matmul(stored.sorted(g, x), stored.tensor, scheme=stored.scheme, activations=activations)
        if self.reads_in_place:
            is_read = stored.tensor.dtype in READ_IN_PLACE
            return g.matmul_transposed(x, stored.tensor if is_read else stored.widened(g))
        return g.matmul(x, g.transpose(stored.widened(g)))

    def with_updates(self, products: Tensor, x: Tensor, name: str) -> Tensor:
        """Return the products of a layer with `x`, with those of its updates by adapters added."""
        size_out: Any = products.shape.dims[-1]
        for update in self.updates_of(name):
            products = products + update.products(self.g, x, self.prefix + name, size_out)
        return products

    def updates_of(self, name: str) -> Sequence[LowRankUpdate]:
        """Return the updates of the matrix of a layer by adapters."""
        return () if self.checkpoint is None else self.checkpoint.updates_of(self.prefix + name)

    def is_packed(self, name: str) -> bool:
        """Return whether the weight of a layer is stored in packed blocks."""
        weight = None if self.checkpoint is None else self.checkpoint.find(f"{self.prefix}{name}.weight")
        return weight is not None and isinstance(weight.encoding, (PackedBlocks, PermutedBlocks))

    def norm(self, name: str, size: int) -> tuple[Tensor, Tensor]:
        """Return scale and bias of a norm."""
        return self.param(f"{name}.weight", (size,)), self.param(f"{name}.bias", (size,))


@dataclass(frozen=True)
class StoredParameter:
    """A parameter of a graph as a file stores it.

    Attributes:
        tensor: The parameter: numbers, or rows of bytes.
        scheme: The format of packed blocks, or None for numbers.
        order: The column of the matrix for each stored column, i32 `[in]`; None if they are in order.
    """

    tensor: Tensor
    scheme: str | None = None
    order: Tensor | None = None

    def widened(self, g: Any) -> Tensor:
        """Return the parameter as f32."""
        if self.scheme is None:
            return self.tensor if self.tensor.dtype is f32 else g.cast(self.tensor, "f32")
        values = g.dequantize_packed(self.tensor, scheme=self.scheme)
        return values if self.order is None else g.gather(values, g.argsort(self.order), axis=-1)

    def sorted(self, g: Any, x: Tensor) -> Tensor:
        """Return the columns of `x […, in]` in the order of the stored columns of a matrix."""
        return x if self.order is None else g.gather(x, self.order, axis=-1)


@dataclass(frozen=True)
class TokenEmbedding:
    """The table of the embedding of tokens, `[rows, size]`, as it is stored.

    Attributes:
        scope: The scope of the parameter.
        name: Its name there, without `.weight`.
        dims: The sizes of the table.
        stored: The parameter.
    """

    scope: ParameterPrefix
    name: str
    dims: tuple[int, int]
    stored: StoredParameter

    def rows(self, ids: Tensor) -> Tensor:
        """Return the rows of tokens, f32 `[…, size]`. Only these are widened."""
        g, stored = self.scope.g, self.stored
        rows = replace(stored, tensor=g.embedding(stored.tensor, ids)).widened(g)
        for update in self.scope.updates_of(self.name):
            rows = rows + update.rows(g, ids, self.scope.prefix + self.name, self.dims)
        return rows

    def products(self, x: Tensor) -> Tensor:
        """Return the products of `x […, size]` with all rows: the logits of a model with tied embeddings."""
        return self.scope.products(x, self.stored)
