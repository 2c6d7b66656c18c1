"""`greedy_tokens`: texts of encoder–decoder models, with the most probable token at each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.models.encoder_decoder import EncoderDecoderConfig
from rlx.models.model import PretrainedModel
from rlx.runtime.session import Session
from rlx.support.errors import Error, UnsupportedError

_MASK = "attention_mask"


def greedy_tokens(
    model: PretrainedModel,
    inputs: Mapping[str, np.ndarray],
    *,
    max_new_tokens: int = 32,
    session: Session | None = None,
) -> np.ndarray:
    """Return the tokens that an encoder–decoder model generates for inputs of its encoder.

    Three programs are compiled: the encoder, the first step of the decoder, and later steps, whose number of earlier tokens is
    open. Tokens that `generation_config.json` forces or suppresses are not treated differently.

    Args:
        model: A model of `rlx.models.load` with a decoder that computes logits.
        inputs: The inputs of `model.encoder_graph`: `input_ids` `[batch, sequence]` i32 and `attention_mask` of the same shape
            (by default ones), or `input_features` f32.
        max_new_tokens: The largest number of tokens after the first one.
        session: The session that compiles; by default one for the CPU.

    Returns:
        `[batch, 1 + n]` i32, where each row begins with `decoder_start_token_id`. After `eos_token_id`, rows have
        `pad_token_id`.

    Raises:
        UnsupportedError: The model is not an encoder–decoder model with logits.
        Error: `config.json` lacks the first token, or an argument is not valid.
    """
    config = model.config
    if not isinstance(config, EncoderDecoderConfig) or not config.head:
        raise UnsupportedError(f"greedy_tokens takes an encoder–decoder model with logits, got a {model.model_type}")
    start, end = config.decoder_start_token_id, config.eos_token_id
    if start is None:
        raise Error("config.json has no 'decoder_start_token_id', the first token of the decoder")
    if type(max_new_tokens) is not int or max_new_tokens < 1:
        raise Error(f"max_new_tokens must be a positive integer, got {max_new_tokens!r:.60}")
    given, sizes = _encoder_inputs(config, inputs)
    session = session or Session()
    encode = session.compile(model.encoder_graph(**sizes))
    state = dict(encode.run_named(given))
    del state["last_hidden_state"]
    if _MASK in given:
        state[f"encoder_{_MASK}"] = given[_MASK]
    batch = sizes["batch"]
    steps = {"batch": batch, "cache": True} | ({"encoder_sequence": sizes["sequence"]} if "sequence" in sizes else {})
    step, later = session.compile(model.graph(**steps)), None
    rows, is_done = [np.full(batch, start, np.int32)], np.zeros(batch, bool)
    for _ in range(max_new_tokens):
        results = dict(step.run_named({**state, "decoder_input_ids": rows[-1][:, None]}))
        following = results.pop("logits")[:, -1].argmax(-1).astype(np.int32)
        state |= {f"past_{name}": array for name, array in results.items()}
        rows.append(np.where(is_done, config.pad_token_id or 0, following).astype(np.int32))
        is_done |= following == (-1 if end is None else end)
        if is_done.all():
            break
        later = later or session.compile(model.graph(**steps, past="past"))
        step = later
    return np.stack(rows, 1)


def _encoder_inputs(
    config: EncoderDecoderConfig, inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the inputs of the encoder and the sizes of its graph.

    Raises:
        Error: An input is missing, is unknown, or has the wrong rank.
    """
    first, rank = ("input_features", 3) if config.mel_bins else ("input_ids", 2)
    known = {first} if config.mel_bins else {first, _MASK}
    if first not in inputs or inputs.keys() - known:
        raise Error(f"inputs must have {' and '.join(sorted(known))} by name, got {sorted(map(str, inputs))}")
    array = np.asarray(inputs[first])
    if array.ndim != rank or not array.shape[0]:
        raise Error(f"'{first}' must have {rank} axes and at least one row, got the shape {list(array.shape)}")
    if config.mel_bins:
        return {first: array.astype(np.float32)}, {"batch": array.shape[0]}
    mask = np.asarray(inputs.get(_MASK, np.ones(array.shape)))
    if mask.shape != array.shape:
        raise Error(f"'{_MASK}' must have the shape {list(array.shape)} of 'input_ids', got {list(mask.shape)}")
    arrays = {first: array.astype(np.int32), _MASK: mask.astype(np.int32)}
    return arrays, {"batch": array.shape[0], "sequence": array.shape[1]}
