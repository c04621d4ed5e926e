"""The report in a real Chromium: quiet, offline, readable, usable from the keyboard."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph.comparison.comparing import compare
from hushgraph.report.about import FIELDS
from hushgraph.report.facts import collect_facts
from hushgraph.report.label import write_label
from hushgraph.report.pages import write_page
from hushgraph.report.report import render_report
from hushgraph.runs.folder import RunFolder
from plan_words import sentence

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

PAGES = ("report",)
# The report of another method has other pictures, and one that is to be signed more tables.
ALL_PAGES = (*PAGES, "billboard", "signed")
# Text and background of every element with words of its own; the background is that of the nearest ancestor
# that has one.
LOW_CONTRAST = """() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).map((c) => c / 255).map(
      (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor, alpha = parts(colour)[3] ?? 1;
      if (alpha === 1) return colour;
      if (alpha > 0) throw new Error("translucent background of " + e.outerHTML.slice(0, 80));
    }
    return "rgb(255, 255, 255)";
  };
  const found = {seen: 0, low: []};
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const hidden = !element.checkVisibility({visibilityProperty: true});
    if (!own || hidden || element.closest("script, style, noscript, svg > title, svg > desc")) continue;
    const style = getComputedStyle(element);
    const ink = light(element.closest("svg") ? style.fill : style.color), paper = light(behind(element));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    found.seen += 1;
    if (ratio < 4.5) found.low.push(element.outerHTML.slice(0, 80) + " " + ratio.toFixed(2));
  }
  return found;
}"""
REACHABLE = "a[href], button, input, summary, [tabindex='0']"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on the path")
    # Chromium's sandbox does not work for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="module")
def folder(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both pages; asks for the browser first, so that nothing is trained for a skip."""
    folder = tmp_path_factory.mktemp("pages")
    graph = hg.datasets.synthetic(num_nodes=240, num_classes=3, num_features=12, average_degree=6, seed=3)
    quick: dict[str, Any] = {"steps": 4, "hidden": 4, "batch_size": 40, "device": "cpu", "evaluate_every": 2}
    compared = compare(graph, epsilon=6.0, max_readers=2, name="people", **quick)
    compared.runs["DP-GNN (trees)"].report(folder / "report.html", data=graph, comparison=compared)
    compared.runs["DP-Billboard"].report(folder / "billboard.html", data=graph)
    write_signed(compared.runs["DP-Billboard"].folder, folder / "signed.html")
    return folder


def write_signed(run: RunFolder, page: Path) -> None:
    """Write a page with everything that can be attached, of names that are long, and a label."""
    page.with_suffix(".toml").write_text(f'purpose = "{"to plan " * 30}"\nowner = "{"xW" * 60}"\n')
    facts = collect_facts(run, about=page.with_suffix(".toml"))
    common = {
        "split": "test",
        "figure": "accuracy",
        "value": 0.8,
        "noise": [0.7, 0.9],
        "sampling": [0.6, 1.0],
    }
    rows = [
        {**common, "group": group, "class": number}
        for group, number in ((None, None), (None, 1), ("people of more than sixty years", None))
    ]
    facts["result"] |= {"figures": "covered", "figure_table": rows}
    column = {"role": "feature", "treatment": "text, hashed into 1,024 buckets"}
    names = [f"a_long_name_of_a_column_{number}" for number in range(20)]
    facts["attributes"]["columns"] = [{**column, "columns": names}]
    attack = {"name": "first board, row of degree 1,000", "lower_bound": 1.0, "claimed_epsilon": 6.0}
    record: dict[str, Any] = {"lower_bound_by_event": 0.5, "trials": 400, "confidence": 0.95}
    record |= {"exceeds": False, "attacked": "2 boards and 4 steps", "fault": None, "is_of_this_plan": True}
    facts["audit"] = {**attack, **record, "attacks": [attack], "failed_checks": [], "delta": 1e-5}
    write_page(page, facts, render_report(facts))
    write_label(run, page.with_name("label.svg"), about=page.with_suffix(".toml"))


@pytest.fixture(scope="module")
def show(browser: Any, folder: Path) -> Iterator[Any]:
    """Open one of the pages anew, in a tab of that width and those options."""
    tabs: dict[str, Any] = {}

    def open_tab(width: int, options: dict[str, Any]) -> Any:
        tab = browser.new_context(viewport={"width": width, "height": 844}, **options).new_page()
        tab.on("console", lambda message: tab.heard.append(message.text))
        tab.on("pageerror", lambda error: tab.heard.append(str(error)))
        tab.on("request", lambda request: tab.heard.append(request.url))
        return tab

    def call(name: str, *, width: int = 1100, **options: Any) -> Any:
        key = f"{width} {options}"
        if key not in tabs:
            tabs[key] = open_tab(width, options)
        tabs[key].emulate_media(media="null")
        tabs[key].heard = []
        tabs[key].goto((folder / f"{name}.html").as_uri())
        return tabs[key]

    yield call
    for tab in tabs.values():
        tab.context.close()


def twin_of(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


@pytest.mark.parametrize("name", PAGES)
def test_it_is_quiet_and_asks_for_nothing_else(show: Any, folder: Path, name: str) -> None:
    page = show(name)
    page.wait_for_load_state("networkidle")
    assert [heard for heard in page.heard if not heard.startswith("data:")] == [
        (folder / f"{name}.html").as_uri()
    ]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1100, 390])
def test_the_guarantee_is_what_one_sees_first(show: Any, folder: Path, name: str, width: int) -> None:
    page = show(name, width=width)
    plan = hg.PrivacyPlan.from_json(json.dumps(twin_of(folder, name)["plan"]))
    words = page.get_by_text(sentence(plan), exact=True)
    assert words.is_visible()
    box = words.bounding_box()
    assert box["y"] + box["height"] < 844


@pytest.mark.parametrize("name", PAGES)
def test_headings_are_in_order(show: Any, name: str) -> None:
    levels = show(name).eval_on_selector_all(
        "h1, h2, h3, h4, h5, h6", "all => all.filter(h => h.checkVisibility()).map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert levels.count(2) >= 6
    assert all(after - before <= 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("name", PAGES)
def test_the_keyboard_reaches_everything_in_order(show: Any, name: str) -> None:
    page = show(name)
    page.evaluate(
        "selector => [...document.querySelectorAll(selector)].filter(e => e.checkVisibility())"
        ".forEach((e, place) => { e.dataset.place = place; })",
        REACHABLE,
    )
    count = page.locator("[data-place]").count()
    assert count > 10
    for expected in range(count):
        page.keyboard.press("Tab")
        place, style, thick = page.evaluate(
            "() => { const e = document.activeElement, s = getComputedStyle(e);"
            " return [e.dataset.place, s.outlineStyle, parseFloat(s.outlineWidth)]; }"
        )
        assert int(place) == expected
        assert (style, thick >= 2) == ("solid", True)


@pytest.mark.parametrize("name", PAGES)
def test_whatever_takes_focus_has_a_name(show: Any, name: str) -> None:
    page = show(name)
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    focusable = [
        node
        for node in nodes
        if node["role"]["value"] != "RootWebArea"
        and any(p["name"] == "focusable" and p["value"].get("value") for p in node.get("properties", []))
    ]
    assert len(focusable) > 10
    assert [node for node in focusable if not node["name"]["value"].strip()] == []
    pictures = [node for node in nodes if node["role"]["value"] in ("image", "img", "graphics-document")]
    assert pictures
    assert all(node["name"]["value"] for node in pictures)


@pytest.mark.parametrize("name", ALL_PAGES)
@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_scrolls_down_only(show: Any, name: str, width: int) -> None:
    page = show(name, width=width)
    page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ALL_PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(show: Any, name: str, scheme: str) -> None:
    page = show(name, color_scheme=scheme)
    page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    found = page.evaluate(LOW_CONTRAST)
    assert found["seen"] > 100
    assert found["low"] == []


@pytest.mark.parametrize("name", PAGES)
def test_print_has_everything_dark_on_white(show: Any, name: str) -> None:
    page = show(name, color_scheme="dark")
    assert page.locator("details:not([open])").count() > 0
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    hidden = page.eval_on_selector_all(
        "section, table, td, th, svg, p, h2, h3, dd",
        "all => all.filter(e => !e.closest('noscript, .controls'))"
        ".filter(e => !e.checkVisibility() || !e.getBoundingClientRect().height)"
        ".map(e => e.outerHTML.slice(0, 80))",
    )
    assert hidden == []
    assert not page.locator("nav").is_visible()
    found = page.evaluate(LOW_CONTRAST)
    assert found["seen"] > 100
    assert found["low"] == []


@pytest.mark.parametrize("name", [*PAGES, "signed"])
@pytest.mark.parametrize("width", [1100, 390])
def test_a_hint_says_that_wide_tables_scroll_on_a_phone(show: Any, name: str, width: int) -> None:
    page = show(name, width=width)
    page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    wide = page.eval_on_selector_all(
        ".scroll",
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1 && e.querySelector('table'))"
        ".map(e => [e.getAttribute('aria-label'), e.previousElementSibling?.className ?? ''])",
    )
    assert bool(wide) == (width == 390)
    assert [label for label, before in wide if before != "hint"] == []
    assert all(hint.is_visible() == (width == 390) for hint in page.locator(".hint").all())


def test_row_labels_stay_while_columns_scroll(show: Any) -> None:
    page = show("report", width=390)
    page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    table = page.locator(".scroll.wide").first
    label, figure = table.locator("tbody th").first, table.locator("tbody td").last
    before = label.bounding_box()["x"], figure.bounding_box()["x"]
    table.evaluate("e => { e.scrollLeft = e.scrollWidth; }")
    assert label.bounding_box()["x"] == before[0]
    assert figure.bounding_box()["x"] < before[1] - 20


def test_axis_labels_do_not_overlap(show: Any) -> None:
    overlaps = """() => [...document.querySelectorAll("figure svg")].flatMap((svg) => {
      const boxes = [...svg.querySelectorAll("text")].filter((e) => e.textContent.trim()).map(
        (e) => [e.textContent, e.getBoundingClientRect()]);
      return boxes.flatMap(([a, x], i) => boxes.slice(i + 1).filter(([b, y]) =>
        x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 3 && y.top < x.bottom - 3)
        .map(([b]) => svg.querySelector("title").textContent + ": " + a + " / " + b));
    })"""
    for name in ALL_PAGES:
        assert show(name).evaluate(overlaps) == []
        assert show(name, width=390).evaluate(overlaps) == []


def test_text_stays_inside_its_box(show: Any) -> None:
    outside = """() => {
      const svg = [...document.querySelectorAll("svg")].find((e) => e.querySelector(".box"));
      const frame = svg.getBoundingClientRect();
      const boxes = [...svg.querySelectorAll("rect.box")].map((e) => e.getBoundingClientRect());
      return [...svg.querySelectorAll("text")].map((e) => [e.textContent, e.getBoundingClientRect()]).filter(
        ([, x]) => !boxes.some((b) => x.left >= b.left && x.right <= b.right && x.top >= b.top &&
          x.bottom <= b.bottom && x.right <= frame.right)).map(([text]) => text);
    }"""
    for name in ALL_PAGES:
        assert show(name).locator("svg .box").count() >= 3
        assert show(name).evaluate(outside) == []


def test_the_text_of_a_label_stays_in_its_frame(show: Any) -> None:
    page = show("signed", width=390)
    page.goto(page.url.replace("signed.html", "label.svg"))
    frame, texts = page.evaluate("""() => [
      document.querySelector("rect").getBoundingClientRect().toJSON(),
      [...document.querySelectorAll("text")].map((e) => [e.textContent, e.getBoundingClientRect().toJSON()]),
    ]""")
    assert frame["right"] <= 390
    assert len(texts) > 30
    assert [text for text, box in texts if box["left"] < frame["left"] + 8] == []
    assert [text for text, box in texts if box["right"] > frame["right"] - 8] == []
    assert [text for text, box in texts if box["bottom"] > frame["bottom"]] == []
    # A name and its value stand on one line, and do not meet.
    lines = [(one, other) for one, other in pairwise(texts) if one[1]["y"] == other[1]["y"]]
    assert len(lines) >= 6
    assert [one for (one, left), (_, right) in lines if left["right"] > right["left"] - 4] == []


def test_what_is_to_be_signed_has_room_for_it(show: Any) -> None:
    for width in (1100, 390):
        blanks = show("signed", width=width).locator("dl.form .blank")
        # Two are filled in; a line to sign on is added.
        assert blanks.count() == len(FIELDS) - 2 + 1
        for blank in blanks.all():
            box = blank.bounding_box()
            assert box["width"] > 250
            assert box["height"] > 20
