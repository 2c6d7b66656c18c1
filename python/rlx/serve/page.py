"""The chat page: one HTML file that loads nothing else, and the headers that keep it so."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

PAGE = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")


def _digest(tag: str) -> str:
    """Return the source expression that allows the one element with this tag."""
    (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", PAGE, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


_POLICY = (
    "default-src 'none'",
    f"script-src {_digest('script')}",
    f"style-src {_digest('style')}",
    "connect-src 'self'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
)
PAGE_HEADERS = {
    "Content-Security-Policy": "; ".join(_POLICY),
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}
