"""Whole models of PyTorch and transformers with random weights: the graph's results are PyTorch's, also compiled."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rlx
from tests.drawing import drawn

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
nn = torch.nn

_TEXT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24, "vocab_size": 30}


def _of(family: str, kind: str, config: str, **fields: Any) -> Any:
    """Return a model of transformers. Only its module is imported, because importing all takes a minute."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    package = f"transformers.models.{family}"
    made = getattr(importlib.import_module(f"{package}.configuration_{family}"), config)(**fields)
    return getattr(importlib.import_module(f"{package}.modeling_{family}"), kind)(made)


def _resnet18() -> Any:
    fields = {"embedding_size": 4, "hidden_sizes": [4, 8, 8, 8], "depths": [2] * 4, "layer_type": "basic"}
    return _of("resnet", "ResNetForImageClassification", "ResNetConfig", **fields), {"pixel_values": _images(32)}


def _vit() -> Any:
    fields = {k: v for k, v in _TEXT.items() if k != "vocab_size"} | {"image_size": 16, "patch_size": 8}
    return _of("vit", "ViTForImageClassification", "ViTConfig", **fields), {"pixel_values": _images(16)}


def _bert() -> Any:
    mask = torch.tensor([[1] * 5, [1] * 3 + [0] * 2])
    return _of("bert", "BertModel", "BertConfig", **_TEXT), {"input_ids": _tokens(5), "attention_mask": mask}


def _llama() -> Any:
    model = _of("llama", "LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, **_TEXT)
    return model, {"input_ids": _tokens(5), "use_cache": False}


def _t5() -> Any:
    fields = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 4, "vocab_size": 30}
    inputs = {"input_ids": _tokens(5), "decoder_input_ids": _tokens(3), "use_cache": False}
    return _of("t5", "T5Model", "T5Config", **fields), inputs


def _lstm() -> Any:
    return nn.LSTM(5, 6, 2, bidirectional=True, batch_first=True), {"input": torch.randn(3, 4, 5)}


def _projected_lstm() -> Any:
    return nn.LSTM(5, 6, proj_size=3), {"input": torch.randn(4, 2, 5)}


def _gru() -> Any:
    return nn.GRU(5, 6, 2, bidirectional=True, bias=False), {"input": torch.randn(4, 2, 5)}


def _rnn() -> Any:
    return nn.RNN(5, 6, nonlinearity="relu"), {"input": torch.randn(4, 5)}


def _transformer() -> Any:
    model = nn.Transformer(8, 2, 1, 1, 12, batch_first=True)
    return model, {"src": torch.randn(2, 5, 8), "tgt": torch.randn(2, 4, 8)}


def _images(size: int) -> Any:
    return torch.randn(2, 3, size, size)


def _tokens(length: int) -> Any:
    return torch.randint(0, 30, (2, length))


_MODELS: dict[str, Callable[[], Any]] = {
    f.__name__.strip("_"): f
    for f in (_resnet18, _vit, _bert, _llama, _t5, _lstm, _projected_lstm, _gru, _rnn, _transformer)
}


@drawn("name", list(_MODELS), of_each=2)
def test_a_model_gives_what_it_gives_in_pytorch(name: str) -> None:
    torch.manual_seed(0)
    model, kwargs = _MODELS[name]()
    model.eval()
    g = rlx.from_torch(model, (), kwargs)
    with torch.no_grad():
        expected = [t for t in torch.utils._pytree.tree_leaves(model(**kwargs)) if isinstance(t, torch.Tensor)]
    inputs = {name: kwargs[name].numpy() for name in (i.name for i in g.inputs)}
    for got in (rlx.evaluate(g, inputs), rlx.Session("cpu").compile(g).run(inputs)):
        for result, tensor in zip(got, expected, strict=True):
            np.testing.assert_allclose(result, tensor.numpy(), rtol=1e-4, atol=1e-5)


def test_recurrent_layers_are_scans() -> None:
    g = rlx.from_torch(nn.LSTM(5, 6), torch.randn(50, 2, 5))
    assert str(g).count("rlx.lstm") == 1


def test_a_model_keeps_its_sizes_open() -> None:
    model, _ = _bert()
    model.eval()
    dims = {0: torch.export.Dim("batch", min=2), 1: torch.export.Dim("length", min=2, max=512)}
    g = rlx.from_torch(model, (), {"input_ids": _tokens(5)}, dynamic_shapes={"input_ids": dims})
    assert g.symbols == {"batch", "length"}
    tokens = torch.randint(0, 30, (3, 7))
    with torch.no_grad():
        expected = model(tokens).last_hidden_state.numpy()
    np.testing.assert_allclose(rlx.evaluate(g, {"input_ids": tokens.numpy()})[0], expected, rtol=1e-4, atol=1e-5)
