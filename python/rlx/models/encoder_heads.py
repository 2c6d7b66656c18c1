"""Heads of encoders: classification of texts and tokens, answers, and predictions of masked tokens.

Parameters and outputs have the names of the transformers package. Sources: Devlin et al., BERT (2018), §3.1 and §4; Liu et al.,
RoBERTa (2019); Sanh et al., DistilBERT (2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix, TokenEmbedding
from rlx.models.encoder import EncoderConfig, first_token, pooled
from rlx.models.family import TaskHead
from rlx.models.fields import ACTIVATIONS

_MASKED, _SEQUENCE, _TOKEN, _ANSWER = (
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)


def labelled(scope: ParameterPrefix, layer: str, states: Tensor, bias: bool = True) -> dict[str, Tensor]:
    """Return the logits of a linear layer with a row for each label."""
    # A missing matrix is reported with one row.
    rows = scope.rows(f"{layer}.weight") or 1
    return {"logits": scope.linear(states, layer, rows, bias)}


def token_head(layer: str) -> TaskHead:
    """Return a head with logits for each token, `[B, S, labels]`."""
    return TaskHead(lambda scope, config, states: labelled(scope, layer, states), (layer,), layer)


def answer_logits(scope: ParameterPrefix, layer: str, states: Tensor) -> dict[str, Tensor]:
    """Return the logits of the first and the last token of an answer, each `[B, S]`."""
    g, (batch, length, _) = scope.g, states.shape.dims
    both = scope.linear(states, layer, 2)
    names = ("start_logits", "end_logits")
    return {name: g.reshape(g.narrow(both, 2, i, 1), (batch, length)) for i, name in enumerate(names)}


ANSWER_HEAD = TaskHead(lambda scope, config, states: answer_logits(scope, "qa_outputs", states), ("qa_outputs",))


def vocabulary_logits(
    scope: ParameterPrefix, tokens: TokenEmbedding, states: Tensor, layer: str, biases: tuple[str, ...]
) -> Tensor:
    """Return the logits of all tokens of the vocabulary, `[B, S, V]`.

    Args:
        scope: The parameters.
        tokens: The embedding. Its table is the matrix of checkpoints without one of their own.
        states: `[B, S, E]`.
        layer: The name of the matrix.
        biases: The possible names of the bias. If a checkpoint has several, they are the same.
    """
    size = tokens.dims[0]
    if scope.has(f"{layer}.weight"):
        logits = scope.linear(states, layer, size, bias=False)
    else:
        logits = scope.with_updates(tokens.products(states), states, layer)
    name = next((name for name in biases if scope.has(name)), biases[0]) if biases else None
    return logits if name is None else logits + scope.param(name, (size,))


def _masked_head(
    dense: str,
    norm: str,
    decoder: str,
    biases: tuple[str, ...],
    activation: str | None = None,
    eps: float | None = None,
) -> TaskHead:
    """Return a head with logits of masked tokens: a dense layer and its norm, and products with the vocabulary.

    Args:
        dense: The name of the dense layer.
        norm: The name of the norm.
        decoder: The name of the matrix of the logits: see `vocabulary_logits`.
        biases: The possible names of their bias.
        activation: The activation of the dense layer; None for that of the encoder.
        eps: The epsilon of the norm; None for that of the encoder.
    """

    def build(scope: ParameterPrefix, config: EncoderConfig, states: Tensor) -> dict[str, Tensor]:
        g, e = scope.g, config.hidden_size
        x = g.activation(ACTIVATIONS[activation or config.hidden_act], scope.linear(states, dense, e))
        x = g.layer_norm(x, *scope.norm(norm, e), eps=config.layer_norm_eps if eps is None else eps)
        tokens = scope.tokens("embeddings.word_embeddings", config.vocab_size, e)
        return {"logits": vocabulary_logits(scope, tokens, x, decoder, biases)}

    return TaskHead(build, (dense, norm))


def _first_token_head(dense: str, activation: str, layer: str) -> TaskHead:
    """Return a head with logits for each text, `[B, labels]`: a dense layer on the first token, and a linear layer."""

    def build(scope: ParameterPrefix, config: EncoderConfig, states: Tensor) -> dict[str, Tensor]:
        x = scope.linear(first_token(scope, states), dense, config.hidden_size)
        return labelled(scope, layer, scope.g.activation(activation, x))

    return TaskHead(build, (dense, layer), layer)


_NEXT = "cls.seq_relationship"
_BERT_MASKED = _masked_head(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.decoder",
    ("cls.predictions.bias", "cls.predictions.decoder.bias"),
)


def _bert_sequence(scope: ParameterPrefix, config: EncoderConfig, states: Tensor) -> dict[str, Tensor]:
    return labelled(scope, "classifier", pooled(scope, states))


def _bert_next(scope: ParameterPrefix, config: EncoderConfig, states: Tensor) -> dict[str, Tensor]:
    return {"logits": scope.linear(pooled(scope, states), _NEXT, 2)}


def _bert_training(scope: ParameterPrefix, config: EncoderConfig, states: Tensor) -> dict[str, Tensor]:
    predictions, next_sentence = _BERT_MASKED.build(scope, config, states), _bert_next(scope, config, states)
    return {"prediction_logits": predictions["logits"], "seq_relationship_logits": next_sentence["logits"]}


BERT_HEADS: Mapping[str, TaskHead] = {
    _MASKED: _BERT_MASKED,
    "ForPreTraining": TaskHead(_bert_training, (*_BERT_MASKED.layers, _NEXT), has_pooler=True),
    "ForNextSentencePrediction": TaskHead(_bert_next, (_NEXT,), has_pooler=True),
    _SEQUENCE: TaskHead(_bert_sequence, ("classifier",), "classifier", has_pooler=True),
    _TOKEN: token_head("classifier"),
    _ANSWER: ANSWER_HEAD,
}

ROBERTA_HEADS: Mapping[str, TaskHead] = {
    _MASKED: _masked_head(
        "lm_head.dense",
        "lm_head.layer_norm",
        "lm_head.decoder",
        ("lm_head.bias", "lm_head.decoder.bias"),
        activation="gelu",
    ),
    _SEQUENCE: _first_token_head("classifier.dense", "tanh", "classifier.out_proj"),
    _TOKEN: token_head("classifier"),
    _ANSWER: ANSWER_HEAD,
}

DISTILBERT_HEADS: Mapping[str, TaskHead] = {
    _MASKED: _masked_head(
        "vocab_transform", "vocab_layer_norm", "vocab_projector", ("vocab_projector.bias",), eps=1e-12
    ),
    _SEQUENCE: _first_token_head("pre_classifier", "relu", "classifier"),
    _TOKEN: token_head("classifier"),
    _ANSWER: ANSWER_HEAD,
}

_MODERN = ("head.dense", "head.norm")


def _modern_states(scope: ParameterPrefix, config: Any, states: Tensor) -> Tensor:
    """Return the states after the dense layer and the norm that all heads of ModernBERT begin with."""
    g, e, part = scope.g, config.hidden_size, scope.at("head")
    x = part.linear(states, "dense", e, config.classifier_bias)
    x = g.activation(ACTIVATIONS[config.classifier_activation], x)
    weights = part.norm("norm", e) if "norm" in config.biases else (part.param("norm.weight", (e,)),)
    return g.layer_norm(x, *weights, eps=config.norm_eps)


def _modern_masked(scope: ParameterPrefix, config: Any, states: Tensor) -> dict[str, Tensor]:
    tokens = scope.tokens("embeddings.tok_embeddings", config.vocab_size, config.hidden_size)
    biases = ("decoder.bias",) if config.decoder_bias else ()
    return {"logits": vocabulary_logits(scope, tokens, _modern_states(scope, config, states), "decoder", biases)}


def _modern_sequence(scope: ParameterPrefix, config: Any, states: Tensor) -> dict[str, Tensor]:
    g = scope.g
    if config.classifier_pooling == "cls":
        pooled = first_token(scope, states)
    else:
        keep = g.cast(g.argument("attention_mask"), "f32")
        pooled = g.dot_general(keep, states, [1], [1], [0], [0]) / g.sum(keep, 1, keep_dims=True)
    return labelled(scope, "classifier", _modern_states(scope, config, pooled))


def _modern_tokens(scope: ParameterPrefix, config: Any, states: Tensor) -> dict[str, Tensor]:
    return labelled(scope, "classifier", _modern_states(scope, config, states))


def _modern_answer(scope: ParameterPrefix, config: Any, states: Tensor) -> dict[str, Tensor]:
    return answer_logits(scope, "classifier", _modern_states(scope, config, states))


_modern_classifier = partial(TaskHead, layers=(*_MODERN, "classifier"), labels="classifier")
MODERNBERT_HEADS: Mapping[str, TaskHead] = {
    _MASKED: TaskHead(_modern_masked, _MODERN),
    _SEQUENCE: _modern_classifier(_modern_sequence),
    _TOKEN: _modern_classifier(_modern_tokens),
    _ANSWER: TaskHead(_modern_answer, (*_MODERN, "classifier")),
}
