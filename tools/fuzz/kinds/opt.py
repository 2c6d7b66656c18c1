"""Runs of `rlx-opt`: damaged text or bytecode, arbitrary command lines and pipelines, output files."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from tools.fuzz import corpus
from tools.fuzz.frame import Kind
from tools.fuzz.kinds.bytecode import written
from tools.fuzz.kinds.texts import PIPELINES
from tools.fuzz.mutators import Mutator, damaged_bytes

_NATIVE = ("canonicalize", "cse", "inline", "symbol-dce", "sccp", "strip-debuginfo", "loop-invariant-code-motion")
_FLAGS = (
    *(
        "--mlir-print-debuginfo",
        "--mlir-print-op-generic",
        "--split-input-file",
        "--verify-diagnostics",
        "--emit-bytecode",
    ),
    *(
        "--verify-each=0",
        "--mlir-timing",
        "--allow-unregistered-dialect",
        "--mlir-print-ir-after-all",
        "--dump-pass-pipeline",
    ),
    *("--mlir-elide-elementsattrs-if-larger=4", "--mlir-print-ir-after-change", "--check-numerics", "--no-such-flag"),
)
_VALUES = (
    "",
    "1",
    "-1",
    "0",
    "9" * 30,
    "true",
    "x",
    "a,b",
    "nan",
    "1e400",
    "'a b'",
    '"',
    "{",
    "((((",
    "é",
    "\ud800",
    "x" * 5000,
)


class Opt(Kind):
    name = "opt"
    suffix = ".json"
    seconds = 60.0

    def prepare(self) -> None:
        from rlx.passes import base

        self.mutator = Mutator(corpus.texts(), corpus.words())
        self.bytecode = [written(graph) for graph in corpus.graphs()[::40]]
        self.passes = {name: [o.name for o in cls.options()] for name, cls in sorted(base.load().items())}
        self.folder = Path(tempfile.mkdtemp(prefix="rlx-fuzz-opt-"))

    def make(self, rng: random.Random) -> bytes:
        if rng.random() < 0.03:
            data = damaged_bytes(rng.choice(self.bytecode), rng)
        elif rng.random() < 0.3:
            data = rng.choice(self.mutator.corpus).encode()
        else:
            data = self.mutator.text(rng).encode("utf-8", "surrogatepass")
        arguments = rng.sample(_FLAGS, rng.choice((0, 0, 1, 1, 2, 4)))
        if rng.random() < 0.1:
            flag = rng.choice(_FLAGS).partition("=")[0]
            arguments.append(f"{flag}={rng.choice(_VALUES)}")
        arguments += self._pipeline(rng)
        if rng.random() < 0.5:
            arguments.append(rng.choice(("-o=OUT", "-o=OUT", "-o=IN", "-o=missing/out.mlir", "-o=a\0b")))
        rng.shuffle(arguments)
        return json.dumps({"arguments": arguments, "data": data.decode("latin-1")}).encode()

    def _pipeline(self, rng: random.Random) -> list[str]:
        if rng.random() < 0.3:
            return ["--pass-pipeline=" + rng.choice(PIPELINES)]
        if rng.random() < 0.3:
            return [f"--{name}" for name in rng.sample((*self.passes, *_NATIVE), rng.choice((1, 2, 3)))]
        text = ",".join(self._element(rng) for _ in range(rng.choice((0, 1, 1, 2, 3))))
        for _ in range(rng.choice((0, 0, 0, 1, 3, 100, 5000))):
            text = f"{rng.choice(('builtin.module', 'func.func', 'any', 'x'))}({text})"
        if rng.random() < 0.2:
            text = self.mutator.characters(text, rng)
        return ["--pass-pipeline=" + text]

    def _element(self, rng: random.Random) -> str:
        name = rng.choice((*self.passes, *_NATIVE, "no-such-pass"))
        keys = [*self.passes.get(name, ()), "max-iterations", "no-such-option", "n"]
        options = " ".join(f"{rng.choice(keys)}={rng.choice(_VALUES)}" for _ in range(rng.choice((0, 0, 1, 1, 2, 50))))
        return f"{name}{{{options}}}" if options else name

    def attempt(self, data: bytes) -> Any:
        from rlx.cli import opt
        from rlx.support.errors import Error
        from tests.cli.standard_streams import called

        case = json.loads(data)
        given = case["data"].encode("latin-1")
        source, target = self.folder / "in.mlir", self.folder / "out.mlir"
        source.write_bytes(given)
        target.write_bytes(b"as it was")
        arguments = [a.replace("=OUT", f"={target}").replace("=IN", f"={source}") for a in case["arguments"]]
        done = called(lambda: opt.main([*arguments, str(source)]), b"")
        code, printed, errors = done.code, done.text, done.errors.decode()
        assert code in (0, 1), f"exit code {code}"
        assert "internal error" not in errors and "Traceback" not in errors, errors[-3000:]
        if code:
            assert errors.strip(), "fails without a message"
            assert source.read_bytes() == given, "the input has changed"
            assert target.read_bytes() == b"as it was", "the output is written in spite of an error"
            raise Error(errors[:200])
        overwritten = source.read_bytes() != given
        assert not overwritten or "-o=IN" in case["arguments"], "the input has changed"
        assert sorted(p.name for p in self.folder.iterdir()) == ["in.mlir", "out.mlir"], "files are left over"
        return printed


KIND = Opt()
