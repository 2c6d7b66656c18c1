"""Portable StableHLO artifacts: bytecode that other versions of StableHLO, and therefore XLA, IREE and JAX, can read."""

from __future__ import annotations

import re
from typing import Any

from rlx import mlir
from rlx.dialect.dtypes import ROWS
from rlx.ir.location import describe
from rlx.ir.text.modules import verify_module
from rlx.support.errors import CompileError, UnsupportedError
from rlx.targets.xla.flags import STABLEHLO_VERSION

# The version that added the newest op of the lowering (tan). Readers of this and later versions accept artifacts.
VERSION = "1.4.0"
# The versions that added dtypes later.
_SINCE = {row.mlir: row.stablehlo for row in ROWS if row.stablehlo}
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", re.ASCII)
# MLIR's message for an op that a version lacks; the op is `tan` in `vhlo.tan_v2`.
_TOO_NEW = re.compile(r"failed to legalize operation 'vhlo\.(\w+)_v\d+'")


def version_for(module: Any) -> str:
    """Return the StableHLO version for a module's artifact: the oldest with all dtypes of the module and all ops of RLX."""
    met: set[Any] = set()

    def visit(op: Any) -> Any:
        met.update(value.type for value in (*op.operands, *op.results))
        met.update(argument.type for region in op.regions for block in region.blocks for argument in block.arguments)
        return mlir.ir.WalkResult.ADVANCE

    mlir.walk(module, visit)
    ranked = [t for t in met if isinstance(t, mlir.ir.RankedTensorType)]
    added = [_SINCE.get(str(element), VERSION) for element in {t.element_type for t in ranked}]
    return max([VERSION, *added], key=lambda version: _parts(version) or ())


def to_portable(lowered: Any, version: str | None = None) -> bytes:
    """Return a StableHLO module as a portable artifact.

    The module cannot be used afterwards, because serialising converts it to another dialect in place.

    Args:
        lowered: The module.
        version: The StableHLO version of the readers, accepted by `checked_version`; None for the result of `version_for`.

    Raises:
        UnsupportedError: The version lacks an op of the module; the message names the first.
    """
    verify_module(lowered)
    version = version or version_for(lowered)
    said: list[Any] = []
    with mlir.entered():
        handler = mlir.context().attach_diagnostic_handler(lambda diagnostic: said.append(_read(diagnostic)) or True)
        try:
            return mlir.stablehlo().serialize_portable_artifact(lowered, version)
        except ValueError:
            message, place = said[0] if said else ("it cannot be serialised", None)
        finally:
            handler.detach()
    raise version_error(version, message, place)


def version_error(version: str, message: str, place: str | None = None) -> UnsupportedError:
    """Return the error for a module that a version of StableHLO cannot represent, from MLIR's message."""
    newer = _TOO_NEW.search(message)
    return UnsupportedError(
        f"StableHLO {version} has no op '{newer[1]}'" if newer else f"StableHLO {version}: {message}",
        location=place,
        hint=f"all that RLX emits is in {VERSION}, the version that is written by default",
    )


def _read(diagnostic: Any) -> tuple[str, str | None]:
    """Return the message and the location of a diagnostic. The diagnostic itself exists only while it is handled."""
    return diagnostic.message, describe(diagnostic.location)


def checked_version(text: str) -> str:
    """Return a StableHLO version after checking that artifacts can be written for it.

    Raises:
        CompileError: The text is not a version, or the version is unknown.
    """
    library = mlir.stablehlo()
    oldest, newest = library.get_minimum_version(), library.get_current_version()
    parts = _parts(text) if isinstance(text, str) else None
    if parts is None or not (_parts(oldest) or ()) <= parts <= (_parts(newest) or ()):
        raise CompileError(
            f"{STABLEHLO_VERSION}={text!s:.40}: artifacts are written for the versions {oldest} to {newest}",
            hint=f"{VERSION}, the default, has all that RLX emits",
        )
    return ".".join(map(str, parts))


def _parts(text: str) -> tuple[int, ...] | None:
    matched = _VERSION.fullmatch(text)
    return None if matched is None else tuple(map(int, matched.groups()))
