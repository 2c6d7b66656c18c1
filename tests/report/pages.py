"""HTML parsing, to check the contents of pages."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """A page or a piece of one. Parsing fails if tags do not match.

    Attributes:
        tags: How often each element occurs.
        attributes: All attributes, as name and value.
        ids: All anchors.
        text: All text outside of styles and scripts.
    """

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.tags: dict[str, int] = {}
        self.attributes: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"open at the end: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> without a beginning"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] not in ("style", "script"):
            self.text += data

    def check(self) -> None:
        """Check that the page loads nothing from elsewhere, runs only its own script, and has no broken links."""
        assert len(set(self.ids)) == len(self.ids)
        addresses = [
            value for name, value in self.attributes if name in ("href", "src", "action", "data", "xlink:href")
        ]
        assert all(a.startswith("#") and a[1:] in self.ids for a in addresses), addresses
        assert not [name for name, _ in self.attributes if name.startswith("on")]
        assert self.tags.get("script", 0) <= 1 and not {"img", "iframe", "link", "object"} & set(self.tags)
        assert all(c.isprintable() or c in "\n\t" for c in self.text)
