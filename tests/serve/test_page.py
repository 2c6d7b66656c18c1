"""The chat page: its text, its headers, and its use in a browser."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

import rlx
from tests.browser import chromium
from tests.serve.serving import GatedModel, RunningServer, ScriptedModel, wait_until

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


class _Elements(HTMLParser):
    """The elements of a page, and its handlers of events."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def test_the_page_loads_nothing_else(server: RunningServer) -> None:
    answer = server.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["connect-src"] == "'self'" and "unsafe" not in str(policy)
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    elements = _Elements(answer.text).found
    for tag, attributes in elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href", "action"):
            assert (attributes.get(name) or "data:,").startswith("data:,"), tag
    assert "url(" not in answer.text and "@import" not in answer.text and "innerHTML" not in answer.text


def test_controls_have_names(server: RunningServer) -> None:
    text = server.get("/").text
    elements = _Elements(text).found
    labels = {attributes.get("for") for tag, attributes in elements if tag == "label"}
    assert dict(elements)["html"]["lang"] == "en"
    for tag, attributes in elements:
        if tag in ("input", "textarea"):
            inside = re.search(rf'<label[^>]*>[^<]+<{tag} id="{attributes["id"]}"', text)
            assert attributes["id"] in labels or inside, attributes
    roles = {attributes.get("role") for _, attributes in elements}
    assert {"log", "alert"} <= roles


def test_a_conversation(browser: Any, model: rlx.llm.LLM) -> None:
    text = f"Some {HOSTILE} text\n```python\nx = 1 < 2\n```\nend"
    scripted = ScriptedModel(model, text)
    scripted.context = 4096
    with RunningServer(scripted, alias="<b>name</b>") as running:
        page = browser.new_page()
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(running.url)
        page.get_by_text("<b>name</b>").wait_for()
        page.get_by_label("Message", exact=True).fill(HOSTILE)
        page.keyboard.press("Enter")
        page.locator("#log[aria-busy=false] article.assistant pre").wait_for()
        assert page.locator("article.user .text").inner_text() == HOSTILE
        assert page.locator("article.assistant pre").inner_text() == "x = 1 < 2\n"
        assert HOSTILE in page.locator("article.assistant .text").inner_text()
        assert page.title() == "RLX chat" and page.locator("#log img, #log script").count() == 0
        # The second message is sent after the first, with the answer.
        page.get_by_label("Message", exact=True).fill("again")
        page.get_by_role("button", name="Send").click()
        page.locator("article.assistant >> nth=1").wait_for()
        page.locator("#log[aria-busy=false]").wait_for()
        page.get_by_role("button", name="New chat").click()
        assert page.locator("article").count() == 0
        assert all(url.startswith((running.url, "data:")) for url in requests)
        assert not problems


def test_stop(browser: Any, model: rlx.llm.LLM) -> None:
    """The button ends the generation on the server, and keeps the part of the answer."""
    gated = GatedModel(model)
    with RunningServer(gated) as running:
        page = browser.new_page()
        page.goto(running.url)
        page.get_by_label("Message", exact=True).fill("count")
        page.keyboard.press("Enter")
        page.get_by_text("0 1 2 3").wait_for()
        assert page.get_by_role("button", name="Send").count() == 0
        page.get_by_role("button", name="Stop").click()
        wait_until(lambda: gated.ended == 1)
        page.get_by_role("button", name="Send").wait_for()
        assert page.locator("article.assistant .text").inner_text().startswith("0 1 2 3")
        assert page.locator("#alert").inner_text() == ""
        running.wait_for_idle()


def test_errors_and_keys(browser: Any, model: rlx.llm.LLM) -> None:
    with RunningServer(ScriptedModel(model, "answer"), api_keys=["secret"]) as running:
        page = browser.new_page(color_scheme="dark")
        page.goto(running.url)
        page.get_by_label("Message", exact=True).fill("hello")
        page.keyboard.press("Enter")
        page.get_by_text("You didn't provide an API key").wait_for()
        assert page.get_by_label("Message", exact=True).input_value() == "hello"  # to be sent again
        assert page.locator("article").count() == 0
        page.get_by_text("Settings").click()
        page.get_by_label("API key").fill("secret")
        page.get_by_role("button", name="Send").click()
        page.locator("article.assistant").get_by_text("answer").wait_for()
        assert page.locator("#alert").inner_text() == ""
