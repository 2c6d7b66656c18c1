"""Object files of kernels: compiled once for a CPU, kept in the cache, and linked into all programs that use the kernels.

The code of a kernel is a function that does not depend on the program (`kernels.emit`). Here it is moved out of the program,
which then only declares it. IREE runs many passes over a whole program, which take less time without this code, and the
kernels that the cache has are not compiled again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlx import mlir
from rlx.support.errors import CompileError
from rlx.targets.cache import DiskCache
from rlx.targets.hashes import fingerprint
from rlx.targets.iree.compiler import ObjectFile, compile_object, compiler_version
from rlx.targets.iree.elf import ElfError, with_visible
from rlx.targets.iree.targets import Target

_log = logging.getLogger("rlx")

# Kernels of other formats stay in the program: a library that a linker of the system makes, or one with checks at run time.
_OTHER_FORMATS = ("--iree-llvmcpu-link-", "--iree-llvmcpu-sanitize", "--iree-llvmcpu-static-")
_TO_PUBLIC = 'sym_visibility = "private"}> ({', 'sym_visibility = "public"}> ({'
_ENTRY = """
  hal.executable.export public @entry ordinal(0)
      layout(#hal.pipeline.layout<constants = 0, bindings = [#hal.pipeline.binding<storage_buffer>]>)
      count(%device: !hal.device) -> (index, index, index) {
    %one = arith.constant 1 : index
    hal.return %one, %one, %one : index, index, index
  }
"""
_ENTRY_FUNCTION = """func.func @entry() attributes {
  translation_info = #iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline>} { return }
"""


def take_out_kernels(
    module: mlir.Module, target: Target, *, cache: DiskCache | None, timeout_s: float | None
) -> list[ObjectFile]:
    """Replace the code of a module's kernels by declarations, and return the object files that have it.

    The module stays as it is, and there are no files, if IREE does not compile the kernels.

    Args:
        module: The input of IREE.
        target: The target.
        cache: A cache of object files.
        timeout_s: The time limit of the compiler in seconds, for this step.

    Raises:
        Error: ``RLX_COMPILE_TIMEOUT`` is not a positive number.
    """
    if any(flag.startswith(_OTHER_FORMATS) for flag in target.kernel_flags):
        return []
    with mlir.entered():
        codes = list(_codes(module, _environment(target)))
    if not codes:
        return []
    files = {code.symbol: file for code in codes if (file := _cached(code.key, cache))}
    missing = {code.symbol: code for code in codes if code.symbol not in files}
    if missing:
        made = _compiled(list(missing.values()), target, timeout_s)
        if made is None:
            return []
        files |= dict.fromkeys(missing, made)
        _store([code.key for code in missing.values()], made, cache)
    with mlir.entered(), mlir.unregistered_dialects_allowed():
        for code in codes:
            code.take_out(files[code.symbol].name, _format(target))
    return list({file.name: file for file in files.values()}.values())


@dataclass(frozen=True)
class _CodeOfKernel:
    """The code of a kernel in a module.

    Attributes:
        executable: The `stream.executable`.
        call: The call of the function with the code.
        function: This function.
        tables: The constant memory that it reads.
        text: The function and the tables as text, under the name `symbol`.
        key: A hash of all that the object file depends on.
    """

    executable: mlir.Operation
    call: mlir.Operation
    function: mlir.Operation
    tables: Sequence[mlir.Operation]
    text: str
    key: str

    @property
    def symbol(self) -> str:
        """The name of the function in object files, which are linked with those of other programs."""
        return _symbol(self.key)

    def take_out(self, path: str, format_: str) -> None:
        """Replace the function by its declaration, and refer to an object file."""
        ir, old = mlir.ir, self.function
        attributes = {name: old.attributes[name] for name in ("function_type", "sym_visibility", "llvm.bareptr")}
        attributes |= {"sym_name": ir.StringAttr.get(self.symbol), "hal.import.static": ir.UnitAttr.get()}
        ir.Operation.create("func.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(old), loc=old.location)
        self.call.attributes["callee"] = ir.FlatSymbolRefAttr.get(self.symbol)
        for op in (*self.tables, old):
            op.erase()
        self.executable.attributes["hal.executable.objects"] = ir.Attribute.parse(
            f'#hal.executable.objects<{{#hal.executable.target<"llvm-cpu", "{format_}"> = '
            f'[#hal.executable.object<{{path = "{path}"}}>]}}>'
        )


def _symbol(key: str) -> str:
    return f"rlx_kernel_{key[:32]}"


def _codes(module: mlir.Module, environment: str) -> Iterator[_CodeOfKernel]:
    """Yield the code of each kernel."""
    for executable in _named("stream.executable", module.operation):
        (inner,) = _named("builtin.module", executable)
        functions, tables = _named("func.func", inner), _named("memref.global", inner)
        calls = [call for function in functions for call in _named("func.call", function)]
        code = next((f for f in functions if "llvm.bareptr" in f.attributes), None)
        if code is None:
            continue
        name = code.attributes["sym_name"].value
        text = "\n".join(op.get_asm(print_generic_op_form=True, use_local_scope=True) for op in (*tables, code))
        own_name = re.compile(rf'(?<=[@"]){re.escape(name)}(?=_table\d|\W)')
        key = fingerprint(environment, own_name.sub("code", text))
        yield _CodeOfKernel(executable, calls[-1], code, tables, own_name.sub(_symbol(key), text), key)


def _named(name: str, op: mlir.Operation) -> list[mlir.Operation]:
    """Return the ops with a name in the first block of another op."""
    return [inner.operation for inner in op.regions[0].blocks[0].operations if inner.operation.name == name]


def _environment(target: Target) -> str:
    parts = (target.arch, target.host_features, *target.kernel_flags, *target.process_flags)
    return "\n".join(["kernel objects 1", compiler_version(), *parts])


def _format(target: Target) -> str:
    return f"embedded-elf-{'x86_64' if target.kernel_cpu.startswith('x86-64') else 'arm_64'}"


def _compiled(codes: Sequence[_CodeOfKernel], target: Target, timeout_s: float | None) -> ObjectFile | None:
    """Return an object file of the code of kernels; None if IREE does not compile it."""
    # Of functions that are not public, LLVM may change the arguments.
    functions = "\n".join(code.text.replace(*_TO_PUBLIC) for code in codes)
    text = f"hal.executable.source public @kernels {{{_ENTRY}builtin.module {{\n{_ENTRY_FUNCTION}{functions}\n}}\n}}\n"
    try:
        data = compile_object(text, target, timeout_s=timeout_s)
        return _object_file(with_visible(data, {code.symbol for code in codes}))
    except (CompileError, ElfError) as problem:
        _log.info("kernels are compiled as a part of the program, because they do not compile alone: %s", problem)
        return None


def _object_file(data: bytes) -> ObjectFile:
    """Return the object file with some bytes. Its name follows from them."""
    return ObjectFile(f"kernels_{fingerprint(data)[:32]}.o", data)


def _cached(key: str, cache: DiskCache | None) -> ObjectFile | None:
    """Return the object file of a cache that has a kernel's code: an entry for the kernel has the key of the file's."""
    name = None if cache is None else cache.get(key)
    data = None if cache is None or name is None else cache.get(name.decode())
    return None if data is None else _object_file(data)


def _store(keys: Sequence[str], file: ObjectFile, cache: DiskCache | None) -> None:
    name = fingerprint("object file", file.data)
    if cache is not None and cache.put(name, file.data):
        for key in keys:
            cache.put(key, name.encode())
