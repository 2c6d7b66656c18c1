"""Checks of rendered pages: nothing is cut, nothing overlaps, and dark pages are dark."""

from __future__ import annotations

from typing import Any

WIDTHS, SCHEMES = (1280, 400), ("light", "dark")

# Returns a list of problems. Elements in details are opened first.
_CHECKS = """
() => {
  const problems = [], width = document.documentElement.clientWidth;
  const say = (what, e) => problems.push(what + ": " + (e.textContent || e.tagName).trim().slice(0, 60));
  if (document.documentElement.scrollWidth > width) problems.push("the page is wider than the screen");
  for (const e of document.querySelectorAll("main *, .rlx *")) {
    if (e.closest("svg, .scroll, style")) continue;
    const r = e.getBoundingClientRect();
    if (r.width && (r.left < -1 || r.right > width + 1)) say("outside of the screen", e);
  }
  for (const frame of document.querySelectorAll(".frame")) {
    if (frame.scrollWidth > frame.clientWidth + 1 || frame.scrollHeight > frame.clientHeight + 1) say("cut", frame);
  }
  const luminance = colour => { const c = (colour.match(/[\\d.]+/g) || []).map(Number);
    return c.length < 3 || c[3] === 0 ? null : (0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]) / 255; };
  const theme = document.body.dataset.jpThemeLight;
  const dark = theme ? theme === "false" : matchMedia("(prefers-color-scheme: dark)").matches;
  for (const svg of document.querySelectorAll("svg")) {
    const box = svg.getBoundingClientRect();
    if (!box.width) continue;
    const texts = [...svg.querySelectorAll("text")].map(t => [t, t.getBoundingClientRect()]);
    for (const [t, r] of texts) {
      if (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1)
        say("text is cut", t);
      const light = luminance(getComputedStyle(t).fill);
      if (dark ? light < 0.45 : light > 0.6) say("text cannot be read, " + light, t);
    }
    const flat = texts.filter(([t]) => !t.hasAttribute("transform"));
    for (let i = 0; i < flat.length; i++) for (let j = 0; j < i; j++) {
      const [a, r] = flat[i], [b, s] = flat[j], lines = r.height * 0.3;
      if (Math.min(r.right, s.right) - Math.max(r.left, s.left) > 1 &&
          Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top) > lines) say("overlaps " + b.textContent.slice(0, 40), a);
    }
    for (const g of svg.querySelectorAll("g")) {
      const rect = g.querySelector("rect")?.getBoundingClientRect();
      for (const t of rect ? g.querySelectorAll("text") : []) {
        const r = t.getBoundingClientRect();
        if (r.left < rect.left - 1 || r.right > rect.right + 1 || r.bottom > rect.bottom + 1) say("leaves its box", t);
      }
    }
    for (const shape of dark ? svg.querySelectorAll("rect, polygon, circle") : []) {
      const r = shape.getBoundingClientRect();
      if (r.width * r.height > 100 && luminance(getComputedStyle(shape).fill) > 0.75) say("white block", shape);
    }
  }
  for (const e of dark ? document.querySelectorAll(".rlx, .rlx *") : [])
    if (luminance(getComputedStyle(e).backgroundColor) > 0.75) say("white background", e);
  return problems;
}
"""
_OPEN = "() => document.querySelectorAll('details').forEach(e => e.open = true)"


def problems(browser: Any, html: str, *, width: int, scheme: str) -> list[str]:
    """Return what is wrong with a page on a screen of some width, in a colour scheme."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.set_content(html)
    page.evaluate(_OPEN)
    found = page.evaluate(_CHECKS)
    owned = page.evaluate("document.querySelectorAll('img, iframe, script:not(:last-child)').length")
    page.close()
    return [*found, *requests, *(["markup from a name"] if owned else [])]


def notebook(*fragments: str, light: bool) -> str:
    """Return outputs as a notebook of JupyterLab shows them."""
    ink, paper = ("#000000de", "#ffffff") if light else ("#ffffffde", "#111111")
    body = "".join(f'<div class="jp-OutputArea-output" style="margin: 1rem">{fragment}</div>' for fragment in fragments)
    return (
        f'<!doctype html><html><body data-jp-theme-light="{"true" if light else "false"}" '
        f'style="margin: 0; color: {ink}; background: {paper}; font: 14px sans-serif">{body}</body></html>'
    )
