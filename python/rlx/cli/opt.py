"""`rlx-opt`: run passes on MLIR text, as `mlir-opt` does."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlx.cli import heed_interrupts
from rlx.cli.common import CliDiagnostic, FilePosition, from_error, from_mlir, place_of
from rlx.cli.exit_codes import exit_code, wants_traceback
from rlx.cli.extensions import load
from rlx.cli.files import output_file, write_output
from rlx.cli.opt_dialects import check_dialects, has_emitted_ops
from rlx.cli.opt_flags import PROGRAM, CommandLineError, Settings, help_text, parse, unknown
from rlx.cli.streams import say, standard_input, write
from rlx.report.text import table
from rlx.support.errors import Error
from rlx.version import __version__

if TYPE_CHECKING:
    from rlx.ir.text.assembly import GenericText
    from rlx.passes.instruments import Statistics, Timing
    from rlx.passes.pipeline import PassPipeline
    from rlx.passes.runner import Instrument

# Only the modules for --version and --help are imported above. MLIR is loaded when it is needed.
_MARKER = "// -----"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: see `exit_code`."""
    return exit_code(PROGRAM, _run_reporting_failures, argv)


def _run_reporting_failures(argv: Sequence[str]) -> int:
    """Run the command line. Print invalid command lines and internal errors, which `exit_code` does not handle."""
    try:
        return _run(argv)
    except CommandLineError as problem:
        for line in str(problem).split("\n"):
            say(f"{PROGRAM}: {line}", stream=sys.stderr)
        return 1
    except (Error, OSError):
        raise
    except Exception as problem:
        if wants_traceback():
            raise
        say(f"{PROGRAM}: internal error: {type(problem).__name__}: {problem}", stream=sys.stderr)
        say(f"{PROGRAM}: RLX_TRACEBACK=1 shows where", stream=sys.stderr)
        return 1


def _run(argv: Sequence[str]) -> int:
    settings = parse(argv)
    if settings.has("help"):
        write(help_text())
    elif settings.has("version"):
        write(f"rlx-opt {__version__}\n")
    elif settings.has("list-passes"):
        load(settings.load)
        write(passes_text(mlir=settings.values["list-passes"] == "all"))
    else:
        heed_interrupts()
        output_file(settings.values.get("o") or "-")
        return OptRun(settings).run()
    return 0


def passes_text(*, mlir: bool) -> str:
    """Return the output of `--list-passes`: the passes of RLX with their options, and those of MLIR or their number."""
    from rlx.passes import native
    from rlx.passes.base import infos

    ours = "\n".join(re.sub(r"^(\S+)", r"  --\1", str(info)) for info in infos())
    names = native.names()
    if not mlir:
        return f"Passes of RLX:\n{ours}\n\n{len(names)} passes of MLIR: --list-passes=all\n"
    theirs = "\n".join(
        table([(f"--{name}", text and f"- {text}") for name, text in names.items()], indent="  ", long={1})
    )
    return f"Passes of RLX:\n{ours}\n\nPasses of MLIR:\n{theirs}\n"


def pipeline_of(settings: Settings) -> PassPipeline:
    """Return the pipeline that the command line specifies.

    Raises:
        CommandLineError: Both a pipeline and single passes are given, or a flag is not a pass.
        PassError: The pipeline's text is wrong.
    """
    from rlx.passes.pipeline import PassPipeline

    text = settings.values.get("pass-pipeline")
    if text is not None:
        if settings.passes:
            raise CommandLineError("--pass-pipeline cannot be used with the flags of single passes")
        return PassPipeline.parse(text)
    return PassPipeline.parse(",".join(_element(name, value) for name, value in settings.passes))


def _element(name: str, value: str | None) -> str:
    """Return a pass flag as pipeline text. A function pass is nested in `func.func`."""
    from rlx.passes import base, native

    text = f"{name}{{{value}}}" if value else name
    if base.find(name) is not None:
        return text
    problem = native.check(name, (), f"builtin.module({name})")
    if problem is not None and problem.unknown:
        raise unknown(name, [*base.load(), *native.names()])
    return f"{problem.nest_in}({text})" if problem is not None and problem.nest_in else text


class OptRun:
    """One call: reads the input, runs the pipeline on its parts, and writes the results if nothing failed."""

    def __init__(self, settings: Settings):
        from rlx.passes.instruments import Statistics, Timing

        self.settings = settings
        self.file = settings.file
        self.timing: Timing | None = Timing() if settings.has("mlir-timing") else None
        self.statistics: Statistics | None = Statistics() if settings.has("mlir-pass-statistics") else None
        self.found: list[CliDiagnostic] = []
        self.failed = False
        self.found_wrong = False
        self.sources: dict[str, str] = {}

    # --- diagnostics ------------------------------------------------------------------------------

    @property
    def verifying(self) -> bool:
        return self.settings.has("verify-diagnostics")

    def report(self, diagnostic: CliDiagnostic) -> None:
        """Print a diagnostic, or store it for comparison."""
        if self.verifying:
            self.found.append(diagnostic)
        else:
            self.show(diagnostic)

    def show(self, diagnostic: CliDiagnostic) -> None:
        if diagnostic.severity == "error":
            self.failed = True
        sys.stderr.write(diagnostic.format(self.sources))

    # --- the whole run ----------------------------------------------------------------------------

    def run(self) -> int:
        """Run the command and return the exit code."""
        from rlx import mlir
        from rlx.ir.op import registry
        from rlx.passes.fusion.remarks import receive_remarks

        registry.load()  # before the context is created, because verifiers are attached when it is created
        try:
            load(self.settings.load)
            pipeline = pipeline_of(self.settings)
            instruments = self._instruments()
            data = self._read()
        except Error as problem:
            # An error in the pipeline is not an error of the input, so it is not compared with comments.
            for diagnostic in from_error(problem, PROGRAM):
                self.show(diagnostic)
            return 1
        if self.settings.has("dump-pass-pipeline"):
            say(f"Pass Manager with {len(pipeline.steps)} passes:\n{pipeline}", stream=sys.stderr)
        results = []
        with contextlib.ExitStack() as stack:
            if self.settings.has("allow-unregistered-dialect") or has_emitted_ops(data):
                stack.enter_context(mlir.unregistered_dialects_allowed())
            handler = mlir.context().attach_diagnostic_handler(self._receive)
            stack.callback(handler.detach)
            stack.enter_context(receive_remarks(self._remark))
            for part in self._parts(data):
                results.append(self._process(part, pipeline, instruments))
                if results[-1] is None and not self.verifying and not self.failed:
                    self.show(
                        CliDiagnostic("error", "no output, for no reason that was given", FilePosition(self.file))
                    )
        if self.failed:
            self._show_figures()
            return 1
        return self._write(results)

    def _receive(self, diagnostic: Any) -> bool:
        self.report(from_mlir(diagnostic, self.file))
        return True

    def _remark(self, location: Any, message: str, hint: str) -> None:
        place = place_of(location, self.file)
        self.report(CliDiagnostic("remark", message, place, (CliDiagnostic("note", hint, place),)))

    def _read(self) -> bytes:
        path = self.settings.input
        if path is None and standard_input().isatty():
            say("(processing input from stdin now, hit ctrl-c/ctrl-d to interrupt)", stream=sys.stderr)
        try:
            return standard_input().buffer.read() if path in (None, "-") else Path(str(path)).read_bytes()
        except OSError as problem:
            raise Error(f"cannot open input file '{path}': {problem.strerror}") from None
        except ValueError:  # a NUL, or an incomplete character
            raise Error(f"not the name of a file: {str(path)!r}") from None

    def _parts(self, data: bytes) -> list[str]:
        """Return the parts of the input. Lines before a part become empty lines, to preserve line numbers."""
        from rlx.ir.text.isolated import is_bytecode
        from rlx.ir.text.modules import decode_module

        try:
            text = decode_module(data, self.file)
        except Error as problem:
            for diagnostic in from_error(problem, self.file):
                self.show(diagnostic)
            return []
        if is_bytecode(data):
            return [text]
        self.sources[self.file] = text
        if "split-input-file" not in self.settings.values:
            return [text]
        marker = self.settings.values["split-input-file"] or _MARKER
        parts, start = [], 0
        for match in re.finditer(rf"^{re.escape(marker)}[ \t\r]*\n?", text, re.MULTILINE):
            parts.append("\n" * text.count("\n", 0, start) + text[start : match.start()])
            start = match.end()
        return [*parts, "\n" * text.count("\n", 0, start) + text[start:]]

    def _instruments(self) -> list[Instrument]:
        from rlx.passes.checking.check_numerics import CheckNumerics
        from rlx.passes.instruments import PrintIR

        settings = self.settings
        self._check_names([*settings.print_before, *settings.print_after])
        result: list[Instrument] = [
            PrintIR(
                before=settings.print_before,
                after=settings.print_after,
                before_all=settings.has("mlir-print-ir-before-all"),
                after_all=settings.has("mlir-print-ir-after-all"),
                after_change=settings.has("mlir-print-ir-after-change"),
                after_failure=settings.has("mlir-print-ir-after-failure"),
                debug_info=settings.has("mlir-print-debuginfo"),
                generic=settings.has("mlir-print-op-generic"),
            )
        ]
        if "check-numerics" in settings.values:
            from rlx.cli.opt_search import comparison_of

            note = lambda text: say(f"{PROGRAM}: note: check-numerics: {text}", stream=sys.stderr)  # noqa: E731
            comparison = comparison_of(settings)
            seed = (
                comparison.seed if settings.values["check-numerics"] is None else int(settings.values["check-numerics"])
            )
            result.append(CheckNumerics(seed, note, comparison))
        if self.statistics is not None:
            result.append(self.statistics)
        if self.timing is not None:
            result.append(self.timing)  # innermost instrument, so that the time of other instruments is not included
        return result

    def _check_names(self, names: Sequence[str]) -> None:
        from rlx.passes import base, native
        from rlx.support.suggestions import suggestion

        for name in names:
            problem = None if base.find(name) else native.check(name, (), f"any({name})")
            if problem is not None and problem.unknown:
                raise Error(f"'{name}' is not a pass{suggestion(name, {*base.load(), *native.names()})}")

    # --- one part ---------------------------------------------------------------------------------

    def _process(self, part: str, pipeline: PassPipeline, instruments: Sequence[Instrument]) -> str | bytes | None:
        """Parse, transform and print one part; None when it failed."""
        from rlx.passes.runner import emitted_dialects

        self.found.clear()
        before = time.perf_counter()
        module = self._parse(part)
        self._record("Parser", before)
        if module is not None:
            try:
                with emitted_dialects(pipeline.steps):
                    module = self._transformed(module, pipeline, instruments)
            except Error as problem:
                module = None
                for diagnostic in from_error(problem, self.file):
                    self.report(diagnostic)
        if self.verifying:
            from rlx.cli.expected import unmet

            only_expected = self.settings.values["verify-diagnostics"] == "only-expected"
            for diagnostic in unmet(part, self.file, self.found, only_expected=only_expected):
                self.show(diagnostic)
        before = time.perf_counter()
        result = module if module is None or isinstance(module, str) else self._printed(module)
        self._record("Output", before)
        return result

    def _transformed(self, module: Any, pipeline: PassPipeline, instruments: Sequence[Instrument]) -> Any:
        """Return the module after the passes, or the result of a search: a smaller module, or a text."""
        settings = self.settings
        if settings.has("bisect") or "reduce" in settings.values:
            from rlx.cli import opt_search

            if not settings.has("bisect"):
                return opt_search.reduced(module, pipeline, settings)
            text, is_wrong = opt_search.bisected(module, pipeline, settings)
            self.found_wrong = self.found_wrong or is_wrong
            return text
        limit = settings.values.get("rewrite-limit")
        if limit is None:
            pipeline.run(module, verify_each=settings.verify_each, instruments=instruments)
        else:
            from rlx.ir.text.modules import verify_module
            from rlx.passes.rewrite_count import rewrites_counted

            with rewrites_counted(int(limit)):
                pipeline.run(module, verify_each=settings.verify_each, instruments=instruments)
            verify_module(module)
        return module

    def _parse(self, part: str) -> Any:
        from rlx import mlir
        from rlx.ir.op import signature
        from rlx.ir.text.modules import checked_source

        source = None
        with mlir.entered():
            try:
                source = checked_source(part, self.file)
                module = self._parse_text(source)
                signature.check(module)
                if not self.settings.has("allow-unregistered-dialect"):
                    check_dialects(module)
                return module
            except mlir.ir.MLIRError as problem:
                for diagnostic in problem.error_diagnostics:
                    self.report(from_mlir(diagnostic, self.file, source))
                if not problem.error_diagnostics:
                    self.report(
                        CliDiagnostic("error", "not valid MLIR, and MLIR does not say why", FilePosition(self.file))
                    )
            except Error as problem:
                for diagnostic in from_error(problem, self.file):
                    self.report(diagnostic)
        return None

    def _parse_text(self, source: GenericText) -> Any:
        from rlx import mlir
        from rlx.ir.text.modules import parse_op

        ir = mlir.ir
        if source.blank:
            return ir.Module.create()
        op = parse_op(source)
        if op.name == "builtin.module":
            return op.opview
        module = ir.Module.create()
        module.body.append(op)
        module.operation.verify()
        return module

    def _printed(self, module: Any) -> str | bytes:
        settings = self.settings
        if settings.has("emit-bytecode"):
            buffer = io.BytesIO()
            module.operation.write_bytecode(buffer)
            return buffer.getvalue()
        from rlx.ir.text.modules import print_op

        limit = settings.values.get("mlir-elide-elementsattrs-if-larger")
        text = print_op(
            module,
            debug_info=settings.has("mlir-print-debuginfo"),
            generic=settings.has("mlir-print-op-generic"),
            elements_limit=None if limit is None else int(limit),
            verified=True,
        )
        return text.rstrip("\n") + "\n"

    # --- results ----------------------------------------------------------------------------------

    def _write(self, results: Sequence[str | bytes | None]) -> int:
        outputs = [r for r in results if r is not None]
        if not outputs:  # every part failed as its comments expect, so an existing file is not changed
            self._show_figures()
            return 0
        if isinstance(outputs[0], bytes):
            if len(results) > 1:
                raise CommandLineError("--emit-bytecode writes one module, but the input has several")
            data = outputs[0]
        else:
            data = f"{_MARKER}\n".join(str(r) for r in outputs).encode()
        before = time.perf_counter()
        try:
            write_output(self.settings.values.get("o") or "-", data)
        except Error as problem:
            for diagnostic in from_error(problem, PROGRAM):
                self.show(diagnostic)
            return 1
        self._record("Output", before)
        self._show_figures()
        return int(self.found_wrong)

    def _record(self, name: str, since: float) -> None:
        if self.timing is not None:
            self.timing.record(name, time.perf_counter() - since)

    def _show_figures(self) -> None:
        for figures in (self.statistics, self.timing):
            if figures is not None:
                say(str(figures), stream=sys.stderr, end="")


if __name__ == "__main__":
    sys.exit(main())
