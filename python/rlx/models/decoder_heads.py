"""Heads of decoders that classify: texts by their last token, tokens, and the ends of answers."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.decoder_config import DecoderConfig
from rlx.models.encoder_heads import ANSWER_HEAD, labelled, token_head
from rlx.models.family import TaskHead
from rlx.support.errors import UnsupportedError

LANGUAGE_HEAD = "ForCausalLM"


def _sequence(scope: ParameterPrefix, config: DecoderConfig, states: Tensor) -> dict[str, Tensor]:
    """Return the logits of the last token that is not padding, `[B, labels]`."""
    g, ids = scope.g, scope.g.argument("input_ids")
    batch, length, width = states.shape.dims
    if config.pad_token_id is None:
        if batch != 1:
            raise UnsupportedError(
                f"graph: 'batch' must be 1, got {batch}: config.json has no 'pad_token_id', so the last token of a padded text "
                "is not known",
                hint="add the 'pad_token_id' of the tokenizer to config.json",
            )
        last = g.narrow(states, 1, length - 1, 1)
    else:
        places = g.iota((batch, length), axis=1, dtype="i32")
        last_token = g.max(places * g.cast(g.ne(ids, config.pad_token_id), "i32"), 1, keep_dims=True)
        last = g.gather_batched(states, last_token, axis=1)
    return labelled(scope, "score", g.reshape(last, (batch, width)), bias=False)


def decoder_heads(token_layer: str = "score") -> Mapping[str, TaskHead]:
    """Return the heads of a family of decoders.

    Args:
        token_layer: The layer that classifies tokens.
    """
    return {
        "ForSequenceClassification": TaskHead(_sequence, ("score",), "score"),
        "ForTokenClassification": token_head(token_layer),
        "ForQuestionAnswering": ANSWER_HEAD,
    }
