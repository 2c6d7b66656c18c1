"""To be written."""
from typing import Any
def power(s: Any, a: Any, b: Any) -> Any: return s.complex.pow(a, b)
def activation(s: Any, kind: str, x: Any) -> Any: return getattr(s.complex, kind)(x)
