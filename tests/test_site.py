"""The documentation site builds without a warning, has no broken links and fetches nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import hushgraph

ROOT = Path(__file__).parent.parent
# What a browser fetches by itself; links in the text are the reader's choice.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
# Kinds of <link> that are fetched.
RELATIONS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload"}
MISSING = [name for name in ("mkdocs", "material", "mkdocstrings") if importlib.util.find_spec(name) is None]


class Page(HTMLParser):
    """The links, anchors and fetched files of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.fetched: list[str] = []
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.classes |= set(given.get("class", "").split())
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in FETCHED and (tag != "link" or RELATIONS & set(given.get("rel", "").split())):
            self.fetched.append(given.get(FETCHED[tag], ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if MISSING:
        pytest.skip(f"{', '.join(MISSING)} not installed; pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # The notice is about the theme's end of life, years ahead.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def broken_links(pages: dict[Path, Page]) -> list[str]:
    """Links inside the site whose file or anchor is not there."""
    found = []
    for path, page in pages.items():
        for link in [*page.links, *page.fetched]:
            parts = urlsplit(link)
            # The page for what was not found may be served from any address, so its links begin at the root.
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                found.append(f"{path.name}: {link}")
    return found


def fetched_from_elsewhere(page: Page) -> list[str]:
    return [
        link for link in page.fetched if urlsplit(link).scheme not in ("", "data") or link.startswith("//")
    ]


def test_no_link_is_broken(pages: dict[Path, Page]) -> None:
    assert broken_links(pages) == []


def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert fetched_from_elsewhere(page) == [], path.name
        # The theme would load the program that draws diagrams, or formulas, from a public server.
        assert not {"mermaid", "arithmatex"} & page.classes, path.name
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?:@import|url\()\s*[\"']?\s*(?:https?:)?//", text), path.name


def test_every_page_is_there_and_in_the_contents(pages: dict[Path, Page]) -> None:
    start = next(path for path in pages if path.name == "index.html")
    reachable = {(start.parent / urlsplit(link).path).name for link in pages[start].links}
    sources = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    assert {source.with_suffix(".html").name for source in sources} <= reachable


def test_every_public_name_is_described(pages: dict[Path, Page]) -> None:
    anchors = next(page.anchors for path, page in pages.items() if path.name == "api.html")
    names = {f"hushgraph.{name}" for name in hushgraph.__all__}
    names |= {f"hushgraph.datasets.{name}" for name in hushgraph.datasets.__all__}
    assert names - anchors == set()


def test_the_help_is_that_of_the_commands(site: Path) -> None:
    from hushgraph.cli.app import build_app

    text = (site / "command-line.html").read_text(encoding="utf-8")
    commands = [c.name or getattr(c.callback, "__name__", "") for c in build_app().registered_commands]
    assert len(commands) > 3
    for name in commands:
        assert f"Usage: hushgraph {name}" in text


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on the path")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    # Chromium's sandbox does not work for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield started
        started.close()


# Where the button is drawn and where text is, of every block of code.
UNDER_BUTTON = """() => [...document.querySelectorAll(".highlight")].flatMap((block) => {
  const button = block.querySelector(".md-code__button")?.getBoundingClientRect();
  const code = block.querySelector("code"), range = document.createRange();
  range.selectNodeContents(code);
  return button && [...range.getClientRects()].some((x) =>
    x.bottom > button.top && x.top < button.bottom && x.right > button.left) ? [code.innerText] : [];
})"""
COPIED = """() => { window.copied = []; document.addEventListener("copy", () => window.copied.push(
  document.activeElement.value ?? getSelection().toString()), true); }"""


def test_no_page_is_wider_than_a_phone(site: Path, browser: Any) -> None:
    page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
    wide = []
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        if page.evaluate("document.documentElement.scrollWidth") > 390:
            wide.append(path.name)
    assert wide == []


def test_the_copy_button_hides_nothing_and_copies_no_prompt(site: Path, browser: Any) -> None:
    page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
    page.goto((site / "index.html").as_uri())
    page.wait_for_selector(".md-code__button")
    assert page.evaluate(UNDER_BUTTON) == []
    page.evaluate(COPIED)
    block = page.locator(".highlight", has_text="$ hushgraph train").first
    block.locator(".md-code__button").click()
    page.wait_for_function("window.copied.length > 0")
    (copied,) = page.evaluate("window.copied")
    assert copied.splitlines()[0].startswith("hushgraph train demo --epsilon 4")
    assert "$" not in copied


def test_the_home_page_leads_to_ones_own_graph_and_the_notebook(pages: dict[Path, Page]) -> None:
    links = next(page.links for path, page in pages.items() if path.name == "index.html")
    assert {"own-data.html", "tutorial.ipynb", "tutorial.html"} <= set(links)


def test_what_is_wrong_would_be_seen(tmp_path: Path) -> None:
    bad = Page(
        '<a href="none.html">a</a><a href="#nowhere">b</a><a href="https://example.org">c</a>'
        '<script src="https://example.org/a.js"></script><link rel="stylesheet" href="//example.org/a.css">'
    )
    path = tmp_path / "page.html"
    path.touch()
    assert broken_links({path: bad}) == ["page.html: none.html", "page.html: #nowhere"]
    assert len(fetched_from_elsewhere(bad)) == 2
