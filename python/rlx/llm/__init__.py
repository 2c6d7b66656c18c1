"""Language models: `load` opens a GGUF file or a folder, and the model generates text, chats and embeds."""

from __future__ import annotations

from rlx.llm.completion import Chunk, Completion
from rlx.llm.draft import PredictionHead, PromptLookup
from rlx.llm.language_model import LLM
from rlx.llm.loading import load, load_tokenizer
from rlx.llm.quantization.quantize import QuantizedFile, quantize
from rlx.llm.tokenizer import Tokenizer

__all__ = [
    "LLM",
    "Chunk",
    "Completion",
    "PredictionHead",
    "PromptLookup",
    "QuantizedFile",
    "Tokenizer",
    "load",
    "load_tokenizer",
    "quantize",
]
