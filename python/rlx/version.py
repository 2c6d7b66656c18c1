"""The version. The build and the command line read it from this file."""

from __future__ import annotations

__version__ = "0.1.0"
