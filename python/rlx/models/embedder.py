"""`SentenceEmbedder`: text in, unit vectors out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.ir.errors import Error
from rlx.models.bert import BertConfig, sentence_encoder
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.session import Session
from rlx.runtime.weights import read_safetensors

# Programs are compiled for these lengths; a sentence is padded to the next one. Steps of about a quarter bound the
# padding, and fixed sizes are much faster than dynamic ones in attention.
LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512)
BATCHES = (1, 2, 4, 8, 16, 32)

Progress = Callable[[str, float], None]


class SentenceEmbedder:
    """A BERT sentence encoder compiled for one device.

    Args:
        directory: Holds `config.json`, `tokenizer.json` and `model.safetensors`.
        session: Where to compile; the CPU by default.
        progress: Called with what has been done and the seconds it took.
        cache: As in `Session.compile`.

    Raises:
        Error: A file is missing or damaged, or weights do not fit the configuration.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        session: Session | None = None,
        *,
        progress: Progress | None = None,
        cache: Any = True,
    ):
        self.directory = Path(directory)
        if not self.directory.is_dir():
            raise Error(f"no such directory: {self.directory}")
        self.session = session or Session()
        self.config = BertConfig.load(self.directory / "config.json")
        self.tokenizer = _tokenizer(self.directory / "tokenizer.json", self.config.max_position_embeddings)
        self._progress = progress or (lambda what, seconds: None)
        self._cache = cache
        self._programs: dict[tuple[int, int], CompiledGraph] = {}
        started = time.perf_counter()
        self.weights = read_safetensors(self.directory / "model.safetensors")
        self._progress("weights", time.perf_counter() - started)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, truncated to what the model takes."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]

    def program(self, batch: int, length: int) -> CompiledGraph:
        """The program for `[batch, length]`, compiled and loaded on first use."""
        key = (batch, length)
        if key not in self._programs:
            started = time.perf_counter()
            graph = sentence_encoder(self.config, batch, length)
            compiled = self.session.compile(graph, cache=self._cache)
            self._progress(f"compile {batch}x{length}", time.perf_counter() - started)
            started = time.perf_counter()
            try:
                compiled.set_params({a.name: self.weights[a.name] for a in graph.params})
            except KeyError as missing:
                raise Error(f"{self.directory / 'model.safetensors'} has no tensor {missing}") from None
            compiled.load()
            self._progress(f"load {batch}x{length}", time.perf_counter() - started)
            self._programs[key] = compiled
        return self._programs[key]

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """One unit vector for each text.

        Args:
            texts: Any number of strings; longer ones are truncated to the model's length.

        Returns:
            `[len(texts), hidden_size]`, f32, in the order of the texts.

        Raises:
            Error: `texts` is not a list of strings.
        """
        if isinstance(texts, str) or not all(isinstance(t, str) for t in texts):
            raise Error("embed takes a list of strings")
        result = np.zeros((len(texts), self.config.hidden_size), np.float32)
        ids = self.tokenize(texts) if texts else []
        # Neighbours in length share a batch, so that little is padded.
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for start in range(0, len(order), BATCHES[-1]):
            group = order[start : start + BATCHES[-1]]
            result[group] = self.embed_ids([ids[i] for i in group])
        return result

    def embed_ids(self, ids: Sequence[Sequence[int]]) -> np.ndarray:
        """One unit vector for each list of token ids; they run as one batch."""
        longest = self.config.max_position_embeddings
        lengths = [n for n in LENGTHS if n <= longest]
        length = _at_least(lengths, max(map(len, ids)), "tokens")
        batch = _at_least(BATCHES, len(ids), "sentences")
        tokens, mask = np.zeros((batch, length), np.int32), np.zeros((batch, length), np.int32)
        for row, sentence in enumerate(ids):
            tokens[row, : len(sentence)] = sentence
            mask[row, : len(sentence)] = 1
        (embedding,) = self.program(batch, length).run({"ids": tokens, "mask": mask})
        return embedding[: len(ids)]


def _at_least(sizes: Sequence[int], wanted: int, what: str) -> int:
    for size in sizes:
        if size >= wanted:
            return size
    raise Error(f"{wanted} {what} are more than {sizes[-1]}")


def _tokenizer(path: Path, longest: int) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise Error("the package 'tokenizers' is not installed", hint="pip install 'rlx[text]'") from None
    if not path.is_file():
        raise Error(f"no such file: {path}")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as problem:  # tokenizers raises plain Exception
        raise Error(f"cannot read {path}: {problem}") from None
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    return tokenizer
