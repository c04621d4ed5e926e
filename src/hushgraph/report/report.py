"""`write_report`: the page of a run and its JSON twin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hushgraph.privacy.guarantee import digits_up, rounded_up
from hushgraph.report import sections
from hushgraph.report.facts import facts, finished
from hushgraph.report.markup import percent
from hushgraph.report.page import check_place, page, write_both

if TYPE_CHECKING:
    from hushgraph.comparison import Comparison
    from hushgraph.training.run import Run

_SECTIONS = (
    ("guarantee", "The guarantee in full", sections.guarantee),
    ("spending", "Epsilon spent, accuracy reached", sections.spending),
    ("results", "Results", sections.test),
    ("comparison", "Comparison", sections.comparison),
    ("configuration", "Configuration", sections.configuration),
    ("provenance", "Ledger and versions", sections.provenance),
    ("words", "Words on this page", sections.glossary),
)


def write_report(
    run: Run | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    data: Any = None,
    comparison: Comparison | None = None,
) -> None:
    """Write the report of a finished run: one HTML file that needs nothing else, and its JSON twin.

    Args:
        run: the run, or its folder.
        path: ends in .html; the twin beside it ends in .json.
        data: what the run was trained on, for results per class on the test split.
        comparison: what `compare` gave, where there is one.

    Guarantees:
        Both files hold the same facts. A file that is no report is never replaced.
    """
    finished(run)
    place = check_place(path, option="out", kind="report")
    found = facts(run, data=data, comparison=comparison)
    write_both(place, found, render(found))


def render(found: dict[str, Any]) -> str:
    """The page that shows these facts."""
    shown = [
        (name, heading, make(found))
        for name, heading, make in _SECTIONS
        if name != "comparison" or found["comparison"] is not None
    ]
    if found["standing"]["kind"] != "holds":
        seedless = "hold" if found["guarantee"]["guarantee_without_seed"] == "holds" else "be claimed"
        other = {"claimed": "The claim in full", "seeded": f"What would {seedless} without the seed"}
        first = other.get(found["standing"]["kind"], "No guarantee")
        shown[0] = (shown[0][0], first, shown[0][2])
    return page(
        title=f"Privacy report: {_model(found)} on {_data(found)}",
        subtitle=f"One training run, with what it promises about each single node. Written "
        f"{found['written']} by hushgraph {found['versions'].get('hushgraph', '')}.",
        standing=found["standing"],
        cards=_cards(found),
        sections=shown,
        footer="The file with the same name and the ending .json holds the same facts for programs.",
    )


def _model(found: dict[str, Any]) -> str:
    model = found["config"]["model"]
    name = "own model" if model == "own" else model.upper()
    return f"DP-{name}" if found["standing"]["kind"] == "holds" else name


def _data(found: dict[str, Any]) -> str:
    # Data that was given as an object has no name but its type's.
    return "an unnamed graph" if found["data"] in ("Graph", "Data") else str(found["data"])


def _cards(found: dict[str, Any]) -> list[tuple[str, str]]:
    about, kind = found["guarantee"], found["standing"]["kind"]
    claimed = "" if about["guarantee_without_seed"] == "holds" else ", claimed"
    note = {"claimed": claimed, "seeded": f"{claimed}, if it were not seeded"}.get(kind, "")
    cards = [(f"epsilon, one node{note}", rounded_up(float(about["epsilon"])))]
    if kind != "none":
        cards += [
            (f"epsilon, two nodes{note}", rounded_up(float(about["epsilon_group_of_two"]))),
            ("delta", digits_up(about["delta"])),
        ]
    cards.append(("test accuracy (not covered)", percent(found["result"]["test_accuracy"])))
    return cards
