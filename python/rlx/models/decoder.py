"""Graphs of text decoders: layers of attention and feed-forward networks, with keys and values of earlier tokens.

Sources: Touvron et al., Llama (2023), §2.2; grouped heads: Ainslie et al., GQA (2023); windows: Jiang et al., Mistral
7B (2023), §2; norms of queries and keys: Qwen3 (2025), §2; soft caps and norms after each part: Gemma 2 (2024), §2;
parallel layers: Black et al., GPT-NeoX-20B (2022), §2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.decoder_config import PACKED_CACHES, DecoderConfig
from rlx.models.decoder_heads import LANGUAGE_HEAD, decoder_heads
from rlx.models.family import ModelFamily
from rlx.models.feed_forward import feed_forward
from rlx.models.fields import Fields
from rlx.models.latent_attention import latent_qkv, latent_results
from rlx.models.linear_attention import linear_attention
from rlx.models.recurrent import RecurrentStates, start_input
from rlx.models.rope import RotaryTables
from rlx.models.tensor_names import TensorNames, split_fused
from rlx.schemes import SCHEMES
from rlx.support.errors import Error
from rlx.weights import Weight

SIZES: Mapping[str, int | bool | str] = {
    "batch": 1,
    "sequence": 128,
    "past": 0,
    "context": 0,
    "pages": 0,
    "page_length": 256,
    "slots": 0,
    "consecutive": False,
    "cache": False,
    "cache_dtype": "f32",
    "attention_mask": False,
    "last": False,
    "hidden": False,
    "activations": "f32",
}
PREFIXES = ("model.", "transformer.")  # the second in checkpoints that find answers


def decoder_family(
    model_type: str,
    config: Callable[[Fields], DecoderConfig],
    names: TensorNames | None = None,
    prefixes: tuple[str, ...] = PREFIXES,
    has_fused_groups: bool = False,
    token_layer: str = "score",
) -> ModelFamily:
    """Return a family of decoders.

    Its graphs have an input `input_ids` `[batch, sequence]` i32 and an output `logits` `[batch, sequence, vocab_size]`,
    or `last_hidden_state` if the checkpoint is of a model without a head. Options add inputs and outputs:

    - `cache=True` adds outputs `key_<layer>` and `value_<layer>`,
      `[batch, past + sequence, num_key_value_heads · head_dim]`. If `past` is not 0, the keys and values of earlier
      tokens are inputs `past_key_<layer>` and `past_value_<layer>`.
    - `attention_mask=True` adds an input `attention_mask` `[batch, past + sequence]` i32.
    - `context` other than 0 adds states `key_<layer>` and `value_<layer>`, `[batch, context, num_key_value_heads ·
      head_dim]` of the dtype `cache_dtype`, which keep the keys and values of all tokens, and an input `start` `[batch]`
      i32: the position of the first token of `input_ids`, which is the number of tokens before it.
    - `cache_dtype="q8_0"` packs the rows of these states in blocks of this format, u8. Without `context`, keys and values
      are rounded to such blocks, as the states round them.
    - `pages` other than 0 divides these states into pages of `page_length` tokens, `[pages, page_length, …]`, which texts
      use in any order, and adds an input `pages` `[batch, ⌈context / page_length⌉]` i32: the pages of each text. The
      tokens of one run must belong to one page.
    - `slots` and `consecutive` are options for the states of recurrent layers: see `RecurrentStates`.
    - `last=True` computes the logits of only the last token.
    - `hidden=True` adds an output `hidden_states` `[batch, sequence, hidden_size]`: the states of all tokens after the last
      norm.
    - `activations` is the precision of activations in products with packed weights: see the op `dequant_matmul`.

    Args:
        model_type: The name in `config.json`.
        config: Reads the configuration.
        names: The names of the tensors in a folder, if they are not those of graphs.
        prefixes: The possible prefixes of the tensors of the base model.
        has_fused_groups: Whether queries, keys and values are fused by groups of heads: see `split_fused`.
        token_layer: The layer of the head that classifies tokens.
    """
    adapted = None if names is None else partial(_adapted, names, prefixes, has_fused_groups)
    return ModelFamily(
        model_type,
        config,
        _build,
        SIZES,
        "layers.",
        prefixes,
        adapted=adapted,
        heads=decoder_heads(token_layer),
        default_head=LANGUAGE_HEAD,
    )


def _adapted(
    names: TensorNames, prefixes: tuple[str, ...], by_group: bool, tensors: Mapping[str, Weight], config: Any
) -> dict[str, Weight]:
    return split_fused(names.renamed(tensors, prefixes), config, by_group)


def _build(scope: ParameterPrefix, config: DecoderConfig, sizes: Mapping[str, Any]) -> dict[str, Tensor]:
    g, e = scope.g, config.hidden_size
    ids = g.input("input_ids", (sizes["batch"], sizes["sequence"]), "i32")
    run = DecoderLayers(scope, config, ids, sizes)
    tokens = scope.tokens("embed_tokens", config.vocab_size, e)
    x = tokens.rows(ids)
    if config.embedding_scale is not None:
        x = x * config.embedding_scale
    if config.rope is None:
        x = x + run.positions()
    outputs: dict[str, Tensor] = {}
    for i in range(config.num_hidden_layers):
        with g.named(f"layer{i}"):
            x, key, value = run.layer(x, i)
        if sizes["cache"] and key is not None and value is not None:
            outputs |= {f"key_{i}": key, f"value_{i}": value}
    if sizes["hidden"]:
        x = outputs["hidden_states"] = run.norm(scope, "norm", x)
    if sizes["last"]:
        x = g.narrow(x, 1, run.length - 1, 1)
    if not sizes["hidden"]:
        x = run.norm(scope, "norm", x)
    if not config.head:
        return {"last_hidden_state": x} | outputs
    with g.named("head"):
        return {"logits": logits_of(scope, config, x, tokens)} | outputs


def logits_of(scope: ParameterPrefix, config: DecoderConfig, x: Tensor, tokens: Any) -> Tensor:
    """Return the logits for normalised states `x [B, S, E]`."""
    g, cap = scope.g, config.final_logit_softcapping
    if config.tie_word_embeddings:
        logits = scope.with_updates(tokens.products(x), x, "lm_head")
    else:
        logits = scope.linear(x, "lm_head", config.vocab_size, "head" in config.biases)
    if config.logit_scale is not None:
        logits = logits * config.logit_scale
    return logits if cap is None else g.tanh(logits / cap) * cap


def _check_options_of_states(sizes: Mapping[str, Any]) -> None:
    for name in ("past", "cache", "attention_mask"):
        if sizes[name]:
            raise Error(f"graph: with context, keys and values are states, and '{name}' has no meaning")


class _Pages:
    """The pages of the caches of one graph: the input that lists them, and the place of the rows that a run writes.

    Attributes:
        count: The number of pages of a cache.
        length: The number of rows of a page.
        table: The pages of each text, i32 `[batch, N]`.
        written: The page of each text that a run writes to, i32 `[batch]`.
        offset: The first row there, i32 `[batch]`.
    """

    def __init__(self, g: Any, batch: Dim, start: Tensor, sizes: Mapping[str, Any]):
        self.count, self.length = sizes["pages"], sizes["page_length"]
        if type(self.count) is not int or type(self.length) is not int:
            raise Error("graph: 'pages' and 'page_length' must be integers, since states have fixed sizes")
        self.table = g.input("pages", (batch, -(-sizes["context"] // self.length)), "i32")
        number = g.reshape(start // self.length, (batch, 1))
        self.written = g.reshape(g.gather_batched(self.table, number, axis=1), (batch,))
        self.offset = start % self.length


class DecoderLayers:
    """The layers of one graph, with shared rotary tables and masks."""

    def __init__(self, scope: ParameterPrefix, config: DecoderConfig, ids: Tensor, sizes: Mapping[str, Any]):
        self.scope, self.config, self.g = scope, config, scope.g
        self.batch, self.length = ids.shape.dims
        self.past, self.context, self.cache_dtype = sizes["past"], sizes["context"], sizes["cache_dtype"]
        # The format of packed rows in the cache.
        self.scheme = self.cache_dtype if self.cache_dtype in PACKED_CACHES else None
        if self.scheme is not None:
            config.cache_bytes(self.scheme)  # an error if heads do not divide into blocks
        if self.context:
            _check_options_of_states(sizes)
            self.start = start_input(self.g, sizes)
            self.pages = _Pages(self.g, self.batch, self.start, sizes) if sizes["pages"] else None
        self.past_length: Any = 0
        self.cached: dict[str, Tensor] = {}
        if self.past != 0:
            for i in range(config.num_hidden_layers):
                for kind, width in (("key", config.key_width), ("value", config.value_width)):
                    name = f"past_{kind}_{i}"
                    self.cached[name] = self.g.input(name, (self.batch, self.past, width))
            self.past_length = self.cached["past_key_0"].shape.dims[1]
        self.total = self.past_length + self.length
        self.mask = self.g.input("attention_mask", (self.batch, self.total), "i32") if sizes["attention_mask"] else None
        self._tables: dict[RotaryTables, tuple[Tensor, Tensor]] = {}
        self.states: RecurrentStates | None = None
        if config.linear_attention is not None:
            self.states = RecurrentStates(self.g, self.batch, sizes, self.start if self.context else None)
        elif sizes["slots"] or sizes["consecutive"]:
            raise Error("graph: 'slots' and 'consecutive' are options of models with recurrent layers")

    def positions(self) -> Tensor:
        """Return the rows of the table of positions, `[S, E]` or `[B, S, E]`."""
        g, config = self.g, self.config
        table = self.scope.table("embed_positions", config.max_position_embeddings, config.hidden_size)
        if not self.context:
            return g.embedding(table, g.arange(self.past_length, self.total))
        own = g.reshape(self.start, (self.batch, 1)) + g.reshape(g.arange(0, self.length), (1, self.length))
        return g.embedding(table, own)

    def layer(
        self, x: Tensor, i: int, part: ParameterPrefix | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the result of one layer, and the keys and values of all tokens, if it has attention.

        Args:
            x: The tokens, `[B, S, E]`.
            i: The number of the layer.
            part: The scope of its parameters, if it is not that of a layer with this number.
        """
        part, places = part or self.scope.at(f"layers.{i}"), self.config.norm_places
        normal = x if places == "after" else self.norm(part, "input_layernorm", x)
        linear, key, value = self.config.linear_attention, None, None
        if self.states is not None and linear is not None and i in linear.layers:
            update = linear_attention(part.at("linear_attn"), self.config, linear, self.states, normal, i)
        else:
            update, key, value = self._attention(part.at("self_attn"), normal, i)
        if places in ("shared", "parallel"):
            own = normal if places == "shared" else self.norm(part, "post_attention_layernorm", x)
            return x + self._scaled(update) + self._scaled(self._feed_forward(part, own, i)), key, value
        if places in ("after", "around"):
            update = self.norm(part, "post_attention_layernorm", update)
        x = x + self._scaled(update)
        before = {"before": "post_attention_layernorm", "around": "pre_feedforward_layernorm", "after": ""}[places]
        update = self._feed_forward(part, self.norm(part, before, x) if before else x, i)
        if places in ("after", "around"):
            update = self.norm(part, "post_feedforward_layernorm", update)
        return x + self._scaled(update), key, value

    def _scaled(self, update: Tensor) -> Tensor:
        return update if self.config.residual_scale is None else update * self.config.residual_scale

    def _feed_forward(self, part: ParameterPrefix, x: Tensor, i: int) -> Tensor:
        return feed_forward(part.at("mlp"), self.config, x, i)

    def norm(self, scope: ParameterPrefix, name: str, x: Tensor) -> Tensor:
        """Return the norm over the last axis."""
        config, size = self.config, x.shape.dims[-1]
        assert type(size) is int
        if config.norm == "layer":
            return self.g.layer_norm(x, *scope.norm(name, size), eps=config.norm_eps)
        weight = scope.param(f"{name}.weight", (size,))
        return self.g.rms_norm(x, 1.0 + weight if config.offset_norm else weight, eps=config.norm_eps)

    def _attention(self, part: ParameterPrefix, x: Tensor, i: int) -> tuple[Tensor, Tensor, Tensor]:
        config = self.config
        q, k, v, gate = self._queries_keys_values(part, x, i)
        options: dict[str, Any] = {
            "num_heads": config.num_attention_heads,
            "head_dim": config.head_dim,
            "score_scale": config.score_scale,
            "softcap": config.attn_logit_softcapping,
        }
        if self.context:
            k, v = self._stored(f"key_{i}", k), self._stored(f"value_{i}", v)
            attended = self._cached_attention(q, k, v, i, options)
        else:
            if self.scheme is not None:
                k, v = (self.g.dequantize_packed(self.g.quantize_packed(x, self.scheme), self.scheme) for x in (k, v))
            if self.cached:
                k = self.g.concat([self.cached[f"past_key_{i}"], k], 1)
                v = self.g.concat([self.cached[f"past_value_{i}"], v], 1)
            attended = self.g.attention(q, k, v, **self._mask(config.window(i), config.chunk(i)), **options)
        if config.latent is not None:
            attended = latent_results(part, config, config.latent, attended)
        if gate is not None:
            attended = attended * self.g.sigmoid(gate)
        return part.linear(attended, "o_proj", config.hidden_size, "o" in config.biases), k, v

    def _cached_attention(self, q: Tensor, k: Tensor, v: Tensor, i: int, options: Mapping[str, Any]) -> Tensor:
        """Return the attention of a layer to its cache."""
        window, chunk = self.config.window(i), self.config.chunk(i)
        table = None if self.pages is None else self.pages.table
        if chunk is not None and chunk < self.context:
            return self._chunked_attention(q, k, v, chunk, options)
        # The window of attention does not include the token itself.
        own = None if window is None else window - 1
        return self.g.cached_attention(q, k, v, self.start, table, window=own, scheme=self.scheme, **options)

    def _chunked_attention(self, q: Tensor, k: Tensor, v: Tensor, chunk: int, options: Mapping[str, Any]) -> Tensor:
        """Return the attention of tokens to those of their chunk in the cache."""
        g, pages = self.g, self.pages
        if pages is not None and chunk % pages.length == 0:
            # The tokens of a run are in one page, and so in one chunk: it has the attention of a shorter text.
            count, last = chunk // pages.length, pages.table.shape.dims[1] - 1
            first = g.reshape(self.start // chunk * count, (self.batch, 1))
            numbers = g.minimum(first + g.reshape(g.iota((count,), dtype="i32"), (1, count)), last)
            table = g.gather_batched(pages.table, numbers, axis=1)
            return g.cached_attention(q, k, v, self.start % chunk, table, scheme=self.scheme, **options)
        if pages is not None:
            size = pages.table.shape.dims[1] * pages.length
            k, v = (g.reshape(g.gather(x, pages.table, axis=0), (self.batch, size, x.shape.dims[2])) for x in (k, v))
        square = (1, 1, self.length, k.shape.dims[1])
        own = g.reshape(self.start, (self.batch, 1, 1, 1)) + g.iota(square, axis=2, dtype="i32")
        other = g.iota(square, axis=3, dtype="i32")
        seen = (own >= other) & (own // chunk == other // chunk)
        k, v = (g.cast(x, "f32") if self.scheme is None else g.dequantize_packed(x, self.scheme) for x in (k, v))
        return g.attention(q, k, v, mask_kind="custom", mask=seen, **options)

    def _queries_keys_values(
        self, part: ParameterPrefix, x: Tensor, i: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return queries, keys and values, and the gate of the result if there is one."""
        config, g = self.config, self.g
        rotate = partial(self._rotated, i)
        if config.latent is not None:
            return *latent_qkv(part, config, config.latent, x, self.norm, rotate), None
        heads, kv_heads, lanes = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        widths = {"q": heads * lanes * (1 + config.has_query_gate), "k": kv_heads * lanes, "v": kv_heads * lanes}
        q, k, v = (part.linear(x, f"{n}_proj", width, "qkv" in config.biases) for n, width in widths.items())
        gate = None
        if config.has_query_gate:
            split = g.reshape(q, (self.batch, self.length, heads, 2 * lanes))
            dims = (self.batch, self.length, heads * lanes)
            q, gate = (g.reshape(g.narrow(split, 3, start, lanes), dims) for start in (0, lanes))
        if config.qk_norm != "rotated":
            q, k = self._normed(part, "q_norm", q, heads), self._normed(part, "k_norm", k, kv_heads)
        q, k = rotate(q, lanes), rotate(k, lanes)
        if i in config.unrotated_layers:
            return self._tempered(q), k, v, gate
        if config.qk_norm == "rotated":
            q, k = self._unweighted_norm(q, heads), self._unweighted_norm(k, kv_heads)
        return q, k, v, gate

    def _unweighted_norm(self, x: Tensor, heads: int) -> Tensor:
        """Return heads divided by their root mean square."""
        g, lanes = self.g, self.config.head_dim
        ones = g.expand(g.constant(1.0, dtype="f32"), (lanes,))
        split = g.reshape(x, (self.batch, self.length, heads, lanes))
        return g.reshape(g.rms_norm(split, ones, eps=self.config.norm_eps), x.shape.dims)

    def _tempered(self, q: Tensor) -> Tensor:
        """Return queries of a layer without positions, with the factor of their positions."""
        g, temperature = self.g, self.config.query_temperature
        if temperature is None:
            return q
        if self.context:
            positions = g.reshape(self.start, (self.batch, 1)) + g.reshape(g.arange(0, self.length), (1, self.length))
        else:
            positions = g.reshape(g.arange(self.past_length, self.total), (1, self.length))
        steps = g.cast((positions + 1) // temperature.floor, "f32")
        factors = g.log1p(steps) * temperature.scale + 1.0
        return q * g.reshape(factors, (*factors.shape.dims, 1))

    def _rotated(self, i: int, x: Tensor, head_dim: int) -> Tensor:
        """Return heads with rotary positions of a layer."""
        config = self.config
        is_local = config.local_rope is not None and config.window(i) is not None
        rope = config.local_rope if is_local else config.rope
        if rope is None or i in config.unrotated_layers:
            return x
        if rope not in self._tables:
            if self.context:
                self._tables[rope] = rope.tables_at(self.g, self.start, self.length, self.context)
            else:
                self._tables[rope] = rope.tables(self.g, self.past_length, self.length)
        return self.g.rope(x, *self._tables[rope], head_dim, n_rot=rope.lanes, style=config.rope_style)

    def _stored(self, name: str, rows: Tensor) -> Tensor:
        """Write rows to a cache, a state `[batch, context, width]` or one of pages, and return the cache."""
        g, pages, width = self.g, self.pages, rows.shape.dims[2]
        dims = (self.batch, self.context) if pages is None else (pages.count, pages.length)
        if self.scheme is None:
            cache, rows = g.state(name, (*dims, width), self.cache_dtype), g.cast(rows, self.cache_dtype)
        else:
            assert type(width) is int
            cache = g.state(name, (*dims, SCHEMES[self.scheme].row_bytes(width)), "u8")
        place = (self.start, None) if pages is None else (pages.offset, pages.written)
        updated = g.update_cache(cache, rows, *place, scheme=self.scheme)
        g.update(cache, updated)
        return updated

    def _normed(self, part: ParameterPrefix, name: str, x: Tensor, heads: int) -> Tensor:
        """Return queries or keys, normalised as the family does."""
        g, config, kind = self.g, self.config, self.config.qk_norm
        if kind is None:
            return x
        if kind == "width":
            return self.norm(part, name, x)
        split = g.reshape(x, (self.batch, self.length, heads, config.head_dim))
        if kind == "head":
            return g.reshape(self.norm(part, name, split), x.shape.dims)
        weights = part.param(f"{name}.weight", (heads, config.head_dim))
        ones = g.expand(g.constant(1.0, dtype="f32"), (config.head_dim,))
        zeros = g.expand(g.constant(0.0, dtype="f32"), (config.head_dim,))
        return g.reshape(g.layer_norm(split, ones, zeros, eps=config.norm_eps) * weights, x.shape.dims)

    def _mask(self, window: int | None, chunk: int | None) -> dict[str, Any]:
        """Return the mask arguments of `attention`. The window of `attention` does not include the token itself."""
        if type(self.total) is int and chunk is not None and self.total <= chunk:
            chunk = None
        if self.mask is None and chunk is None:
            return {"mask_kind": "causal"} if window is None else {"mask_kind": "sliding_window", "window": window - 1}
        g, square = self.g, (self.length, self.total)
        start = self.total - self.length
        own = g.reshape(g.arange(start, start + self.length), (self.length, 1))
        other = g.iota(square, axis=1, dtype="i32")
        distance = other - own
        keep = distance <= 0
        if chunk is not None:
            keep = keep & (own // chunk == other // chunk)
        if window is not None:
            keep = keep & (distance > -window)
        mask = g.reshape(keep, (1, 1, *square))
        if self.mask is not None:
            mask = g.reshape(g.ne(self.mask, 0), (self.batch, 1, 1, self.total)) & mask
        return {"mask_kind": "custom", "mask": mask}
