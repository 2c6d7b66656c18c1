"""The flags of the target `stablehlo`. Importing this imports nothing."""

from __future__ import annotations

STABLEHLO_VERSION = "--stablehlo-version"
COMMAND_LINE = {
    STABLEHLO_VERSION: ("X.Y.Z", "stablehlo: the version of StableHLO that readers of the file have (default: 1.4.0)"),
}
