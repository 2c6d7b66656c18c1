"""Tokenizers and chat templates of language models."""

from __future__ import annotations

from rlx.llm.tokenizer.folder import tokenizer_from_folder
from rlx.llm.tokenizer.gguf import tokenizer_from_gguf
from rlx.llm.tokenizer.stream import StreamDecoder
from rlx.llm.tokenizer.tokenizer import Tokenizer

__all__ = ["StreamDecoder", "Tokenizer", "tokenizer_from_folder", "tokenizer_from_gguf"]
