"""To be written."""
from typing import Any
FUNCTIONS: dict[str, Any] = {}
def power(s: Any, a: Any, b: Any) -> Any: return s.math.powf(a, b)
def erf(s: Any, x: Any) -> Any: return s.math.erf(x)
