"""`SentenceEmbedder`: converts texts to unit vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from rlx.models.encoder import EncoderConfig
from rlx.models.model import FAMILIES, load, load_config
from rlx.models.sentence import sentence_encoder
from rlx.report.text import bytes_text
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.support.errors import Error
from rlx.support.files import read_json
from rlx.support.locks import holding, make_lock
from rlx.support.printable import printable
from rlx.weights.weight import finite

# Programs are compiled for these lengths, and a sentence is padded to the next one. Steps of about a quarter limit the
# padding. In attention, fixed sizes are much faster than dynamic ones.
LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512)
BATCHES = (1, 2, 4, 8, 16, 32)

Progress = Callable[[str], AbstractContextManager[Any]]


class SentenceEmbedder:
    """A sentence encoder (BERT, RoBERTa, DistilBERT, …) compiled for one device. It is thread-safe.

    Args:
        directory: A folder with `config.json`, `tokenizer.json` and `model.safetensors` (or the index of several
            files).
        session: The session to compile in; by default one for the CPU.
        max_length: Longer sentences are truncated to this number of tokens. The default is the number in
            `sentence_bert_config.json`, or else the number of the model's positions.
        progress: Called with the name of each slow step. It returns a context manager that is open during the step.
        cache: As in `Session.compile`.

    Raises:
        Error: A file is missing or damaged, or weights or tokenizer do not fit the configuration.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        session: Session | None = None,
        *,
        max_length: int | None = None,
        progress: Progress = nullcontext,
        cache: Any = True,
    ):
        self.directory = Path(directory)
        if not self.directory.is_dir():
            raise Error(f"no such directory: {self.directory}")
        self.session = session or Session()
        self.config = _config(self.directory / "config.json")
        self.max_length = _max_length(self.directory, self.config, max_length)
        self.tokenizer = _tokenizer(self.directory / "tokenizer.json", self.config, self.max_length)
        self._progress = progress
        self._cache = cache
        self._lengths = (*(n for n in LENGTHS if n < self.max_length), self.max_length)
        self._programs: dict[tuple[int, int], Program] = {}
        self._lock = make_lock()
        with self._progress("read the weights"):
            self.weights = _weights(self.directory, self.config)

    def __repr__(self) -> str:
        config, size = self.config, sum(weight.nbytes for weight in self.weights.values())
        sizes = f"{config.num_hidden_layers} layers of {config.hidden_size}, {bytes_text(size)} of weights"
        longest = f"texts of up to {self.max_length} tokens"
        text = f"<SentenceEmbedder {self.directory.name}: {sizes}, {longest}, for {self.session.target.name}>"
        return printable(text, keep="")

    def tokenize(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each text, truncated to `max_length`.

        Raises:
            Error: `texts` is not a list of strings, or one cannot be tokenised.
        """
        texts = _strings(texts)
        with _as_error(f"the tokenizer of {self.directory} failed"):
            return [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]

    def program(self, batch: int, length: int) -> Program:
        """Return the program for `[batch, length]`. It is compiled and loaded on first use."""
        return self._programs.get((batch, length)) or holding(self._lock, self._make_program, batch, length)

    def _make_program(self, batch: int, length: int) -> Program:
        key = (batch, length)
        if key not in self._programs:
            with self._progress(f"compile for {batch} x {length} tokens"):
                graph = sentence_encoder(self.config, batch, length)
                compiled = self.session.compile(graph, cache=self._cache)
            with self._progress(f"load for {batch} x {length} tokens"):
                compiled.set_params({a.name: self.weights[a.name] for a in graph.params}, copy=False)
                compiled.load()
            self._programs[key] = compiled
        return self._programs[key]

    def embed(self, texts: Iterable[str], *, batch: int = BATCHES[-1]) -> np.ndarray:
        """Return one unit vector for each text.

        Args:
            texts: Any number of strings.
            batch: The largest number of sentences that run together.

        Returns:
            `[len(texts), hidden_size]`, f32, in the order of the texts.

        Raises:
            Error: `texts` is not a list of strings, or `batch` is not a positive integer.
        """
        if type(batch) is not int or batch < 1:
            raise Error(f"batch must be a positive integer, got {batch!r}")
        batch = max(size for size in BATCHES if size <= batch)
        texts = _strings(texts)
        result = np.zeros((len(texts), self.config.hidden_size), np.float32)
        ids = self.tokenize(texts) if texts else []
        # Texts of similar length share a batch, to reduce padding.
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for start in range(0, len(order), batch):
            group = order[start : start + batch]
            result[group] = self.embed_ids([ids[i] for i in group])
        return result

    def embed_ids(self, ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Return one unit vector for each list of token ids. They run as one batch.

        Args:
            ids: Up to 32 sentences of at least one and at most `max_length` tokens.

        Returns:
            `[len(ids), hidden_size]`, f32.

        Raises:
            Error: There are too many sentences or tokens, a sentence is empty, or an id is not in the vocabulary.
        """
        length = _at_least(self._lengths, max(map(len, ids), default=0), "tokens")
        batch = _at_least(BATCHES, len(ids), "sentences")
        tokens, mask = np.zeros((batch, length), np.int32), np.zeros((batch, length), np.int32)
        for row, sentence in enumerate(ids):
            if not len(sentence):
                raise Error(f"sentence {row} has no tokens, so it has no embedding")
            if not 0 <= min(sentence) <= max(sentence) < self.config.vocab_size:
                raise Error(f"sentence {row} has a token id outside 0 … {self.config.vocab_size - 1}")
            tokens[row, : len(sentence)] = sentence
            mask[row, : len(sentence)] = 1
        (embedding,) = self.program(batch, length).run({"input_ids": tokens, "attention_mask": mask})
        return embedding[: len(ids)]


def _at_least(sizes: Sequence[int], count: int, unit: str) -> int:
    for size in sizes:
        if size >= count:
            return size
    raise Error(f"{count} {unit} are more than {sizes[-1]}")


def _strings(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise Error(f"expected a list of strings, got {type(texts).__name__}")
    texts = list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise Error(f"expected a list of strings, but item {i} is of type {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as problem:
            raise Error(f"text {i} is not valid Unicode: {problem}") from None
    return texts


def _config(path: Path) -> EncoderConfig:
    family, config = load_config(path)
    if family.encode is None:
        encoders = ", ".join(sorted(name for name, other in FAMILIES.items() if other.encode is not None))
        raise Error(f"{path} describes a model of type '{family.model_type}'; sentences are embedded by {encoders}")
    return config


def _weights(directory: Path, config: EncoderConfig) -> dict[str, np.ndarray]:
    """Return the parameters of the encoder, read-only, shared by all programs. Those in f32 are mapped from the file."""
    tensors = load(directory, head=None).weights
    weights = {}
    for name in (a.name for a in sentence_encoder(config, 1, 1).params):
        weights[name] = finite(tensors[name]).astype(np.float32, copy=False)  # f16 and bf16 have the same values in f32
        weights[name].flags.writeable = False
    return weights


def _max_length(directory: Path, config: EncoderConfig, max_length: int | None) -> int:
    positions = config.max_length
    path = directory / "sentence_bert_config.json"
    if max_length is None and path.is_file():
        data = read_json(path)
        if not isinstance(data, dict):
            raise Error(f"cannot read {path}: expected an object, got {type(data).__name__}")
        max_length = data.get("max_seq_length")
    if max_length is None:
        return positions
    if type(max_length) is not int or not 1 <= max_length <= positions:
        raise Error(f"max_length must be an integer from 1 to the model's {positions} positions, got {max_length!r}")
    return max_length


def _tokenizer(path: Path, config: EncoderConfig, longest: int) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise Error("the package 'tokenizers' is not installed", hint="pip install 'rlx[text]'") from None
    if not path.is_file():
        raise Error(f"no such file: {path}")
    with _as_error(f"cannot read {path}"):
        tokenizer = Tokenizer.from_file(str(path))
        greatest = max(tokenizer.get_vocab().values(), default=-1)
        tokenizer.no_padding()
        tokenizer.enable_truncation(longest)
    # A larger id would silently read a wrong row of the embedding table.
    if greatest >= config.vocab_size:
        raise Error(f"{path} has token ids up to {greatest}, but config.json says vocab_size {config.vocab_size}")
    return tokenizer


@contextmanager
def _as_error(message: str) -> Iterator[None]:
    """Convert exceptions of the package tokenizers to an `Error`.

    For some damaged files, its Rust code panics. That panic is not an `Exception`.
    """
    try:
        yield
    except BaseException as problem:
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        raise Error(f"{message}: {problem}") from None
