"""The table of all packed formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlx.schemes import grouped, i_quants, k_quants, microscaling, simple, ternary
from rlx.schemes.scheme import Scheme
from rlx.support.errors import Error

_MODULES = (simple, k_quants, i_quants, ternary, microscaling, grouped)


class SchemeTable(Mapping[str, Scheme]):
    """Packed formats by name. Names are in lower case, and are found in any case.

    Formats with scales in another dtype are found, and not listed: `affine4_block64_bf16`.
    """

    def __init__(self, schemes: Mapping[str, Scheme]):
        self._schemes = dict(schemes)

    def __getitem__(self, name: object) -> Scheme:
        if not isinstance(name, str):
            raise KeyError(name)
        own = self._schemes.get(name.lower()) or grouped.scheme_of_layout(name.lower())
        if own is None:
            raise KeyError(name)
        return own

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemes)

    def __len__(self) -> int:
        return len(self._schemes)

    def __repr__(self) -> str:
        return f"<packed formats: {', '.join(self._schemes)}>"


SCHEMES = SchemeTable({scheme.name: scheme for module in _MODULES for scheme in module.SCHEMES})
_BY_GGML_TYPE = {scheme.ggml_type: scheme for scheme in SCHEMES.values() if scheme.ggml_type is not None}

# Formats whose products have no kernels for the CPU: they are decoded when a program is loaded.
WITHOUT_KERNELS = frozenset(
    name
    for name in SCHEMES
    if name in ("q1_0", "q2_0", "q8_1", "q8_k", "nvfp4") or name.startswith(("iq1", "iq2", "iq3", "tq"))
)


def find_scheme(name: str) -> Scheme:
    """Return a packed format.

    Raises:
        Error: There is none of this name; the message lists all.
    """
    try:
        return SCHEMES[name]
    except KeyError:
        raise Error(f"no packed format is called {name!r:.60}; known are {', '.join(SCHEMES)}") from None


def scheme_of_ggml_type(number: int) -> Scheme | None:
    """Return the packed format with a number in GGUF files; None for numbers of plain dtypes, and unknown ones."""
    return _BY_GGML_TYPE.get(number)
