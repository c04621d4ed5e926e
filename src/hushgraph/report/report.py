"""`write_report`: the page of a finished run for a privacy reviewer, and its JSON twin."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph._text import digits_down, rounded_up
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.units import speak
from hushgraph.report.about import FIELDS
from hushgraph.report.attributes import write_relations
from hushgraph.report.budget import write_spent
from hushgraph.report.charts import Axis, LineChart, choose_ticks, share_axis
from hushgraph.report.facts import collect_facts
from hushgraph.report.pages import (
    check_outside_release,
    check_target,
    format_epsilon,
    render_template,
    write_page,
)
from hushgraph.report.results import (
    TOO_FEW,
    are_covered,
    draw_classes,
    draw_comparison,
    format_result,
    list_exact,
    name_guarantee,
    name_standing,
)
from hushgraph.report.strength import draw_tradeoff

if TYPE_CHECKING:
    from hushgraph.runs.folder import RunFolder
    from hushgraph.tasks.task import Evaluation


# Near the beginning of every page of ours and of its twin, and hardly of any other file.
_MARKS = {".html": b'content="hushgraph"', ".json": b'"report": 1'}
# docs/sign-off.md has the same, with where the answers are.
_QUESTIONS = (
    "Does the box at the top say that the guarantee holds, and is epsilon the one that was agreed on?",
    "What will be released, and does the page call all of it covered?",
    "Who will see whose prediction?",
    "Is one person one node, and whose row holds an edge?",
    "May identifiers, the training split and the list of classes be public?",
    "Is one edge, one label or a pair of people sensitive by itself, and are these figures acceptable?",
    "What else was run on this data, and how were the settings found?",
    "Does the digest of the ledger match?",
    "Does the model do well enough for every class and every group?",
    "Retention: how long are data, run folder, ledger and release kept, and who deletes them?",
    "Access: who can read the data, the run folder and the release, and who decides about that?",
)


def write_report(
    folder: RunFolder,
    path: str | os.PathLike[str],
    *,
    evaluation: Evaluation | None = None,
    comparison: Mapping[str, Any] | None = None,
    about: str | os.PathLike[str] | None = None,
    audit: str | os.PathLike[str] | None = None,
) -> None:
    """Write the report of a finished run: one self-contained HTML file, and its JSON twin.

    Args:
        folder: the run on disk.
        path: ends in .html; the twin beside it ends in .json.
        evaluation: results on the test split of its data, for accuracies per class.
        comparison: the comparison it belongs to, as `Comparison.to_json` writes it.
        about: a TOML file with the keys of `about.FIELDS`. What it
            leaves out is a blank on the page.
        audit: the record of an audit; by default `audit.json` in the folder, if it is there.

    Guarantees:
        Both files hold the same facts. A file that is not a report is never replaced. In `release/` there is
        only a page that was made from the release alone.
    """
    folder.check_finished()
    if not folder.is_release:
        from hushgraph.runs.consistency import check_charged

        # The page says that the ledger is complete.
        check_charged(folder, Ledger.open(folder.ledger_path, plan=folder.plan, read_only=True))
    reads_more = evaluation is not None or comparison is not None
    place = check_report_path(path, folder, reads_more=reads_more)
    facts = collect_facts(folder, evaluation=evaluation, comparison=comparison, about=about, audit=audit)
    write_page(place, facts, render_report(facts))


def check_report_path(path: str | os.PathLike[str], folder: RunFolder, *, reads_more: bool) -> Path:
    """Return where a report goes; raise InputError where it cannot be written.

    Args:
        path: ends in .html.
        folder: the run on disk.
        reads_more: whether the page also shows what is not in the folder: data, or a comparison.
    """
    place = check_target(path, _MARKS, what="a report")
    if reads_more or not folder.is_release:
        what = (
            "a page with results on DATA or of other runs"
            if folder.is_release
            else "the page of the whole run"
        )
        check_outside_release(folder, place, what=what)
    return place


def render_report(facts: Mapping[str, Any]) -> str:
    """Render the page that shows these facts."""
    page = render_template(
        "report.html",
        facts=facts,
        title=f"Privacy report: {name_model(facts)} on {name_data(facts)}",
        standing=facts["standing"],
        epsilons=list_epsilons(facts),
        spent=None if facts["budget"] is None or facts["budget"]["problem"] else write_spent(facts["budget"]),
        relations=write_relations(facts["attributes"]["relations"]),
        tradeoff=draw_tradeoff(facts),
        outcomes=_list_outcomes(facts),
        epsilon_chart=_draw_epsilon(facts),
        accuracy_chart=_draw_accuracy(facts),
        is_covered=are_covered(facts["result"]),
        exact=list_exact(facts),
        class_chart=draw_classes(facts),
        compared=draw_comparison(facts),
        fields=FIELDS,
        questions=_QUESTIONS,
        name_guarantee=name_guarantee,
        name_standing=name_standing,
        format_result=format_result,
        too_few=TOO_FEW,
    )
    return speak(page, facts["unit"])


def name_model(facts: Mapping[str, Any]) -> str:
    """Name the model; only one whose guarantee holds is called DP."""
    model = facts["config"]["model"]
    name = "own model" if model == "own" else model.upper()
    if title := facts["words"]["title"]:
        name = title if model == "mlp" else f"{title} with {name}"
    return f"DP-{name}" if facts["standing"]["kind"] == "holds" else name


def name_data(facts: Mapping[str, Any]) -> str:
    """Name the data."""
    # Data that was given as an object has no name but that of its type, and a release has no path.
    return "an unnamed graph" if facts["data"] in ("Graph", "Data", "", None) else str(facts["data"])


def name_published_data(facts: Mapping[str, Any]) -> str:
    """Name the data on what is published: as `--about` declares it. A file name may be private."""
    return facts["about"]["data"] or "the data"


def list_epsilons(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List epsilon for one row and for every other change that has a figure."""
    about, figures, kind = facts["guarantee"], facts["guarantee_details"], facts["standing"]["kind"]
    note = {"holds": "", "claimed": ", claimed"}.get(kind, ", not guaranteed")
    rows = [
        (f"epsilon, one node{note}", format_epsilon(figures["priced_epsilon"])),
        (f"epsilon, two nodes together{note}", format_epsilon(figures["priced_group_of_two"])),
    ]
    if kind not in ("holds", "claimed"):
        return rows
    edge, label = figures["epsilon_edge"], about["epsilon_label"]
    name = "directed record" if about["directed"] else "undirected edge"
    return [
        *rows,
        (f"epsilon, one {name}{note}", _format_bound(edge)),
        (f"epsilon, one training label{note}", _format_bound(None if label == "inf" else label)),
        (f"epsilon, an evaluated row{note}", format_epsilon(about["epsilon_evaluated"])),
        (f"epsilon, a row of no split{note}", format_epsilon(about["epsilon_other"])),
    ]


def _format_bound(value: float | str | None) -> str:
    return "no bound derived" if value is None else f"at most {format_epsilon(value)}"


def _list_outcomes(facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """List what a run releases, and what bounds the part of one row in it; the covered ones first."""
    about, num_train = facts["guarantee"], facts["plan"]["num_train_nodes"]
    changed = min(about["changed_trees"], num_train)
    unit = "examples" if changed == 1 else "trees"
    outcomes = [
        *((each["name"], *each["bounds"]) for each in facts["charges"] if not each["is_step"]),
        (
            "Weights",
            f"at most {changed:,} of {num_train:,} training {unit}",
            f"noise {digits_down(about['sigma_over_clip'], digits=3)} C on the sum of a step",
        ),
    ]
    if about["predictions"] != "not covered":
        outcomes.append(("Others' predictions", "read their own rows and released values"))
    return outcomes


def _draw_epsilon(facts: Mapping[str, Any]) -> LineChart | None:
    """Draw epsilon by step; None where it is infinite, or where no step was recorded."""
    if not facts["spending"] or not math.isfinite(float(facts["spending"][-1]["epsilon"])):
        return None
    before = float(facts["epsilon_before_steps"])
    points = [(0.0, before)] + [(float(r["step"]), float(r["epsilon"])) for r in facts["spending"]]
    steps, spent = points[-1]
    total = float(facts["guarantee_details"]["priced_epsilon"])
    name = {"holds": "budget", "claimed": "claimed budget"}.get(facts["standing"]["kind"], "not guaranteed:")
    return LineChart(
        name="spent",
        title="Epsilon as it was spent",
        description=(
            f"Epsilon grows from {rounded_up(before)} before the first step to {rounded_up(spent)} after "
            f"step {steps:g}."
        ),
        points=points,
        x=Axis(label="step", ticks=choose_ticks(0, steps)),
        y=Axis(label="epsilon so far", ticks=choose_ticks(0, max(total, spent) * 1.08)),
        limit=(total, f"{name} {rounded_up(total)}"),
    )


def _draw_accuracy(facts: Mapping[str, Any]) -> LineChart | None:
    """Draw validation accuracy by epsilon, or by step where that is infinite; None without any."""
    records = [record for record in facts["spending"] if record["val_accuracy"] is not None]
    if not records:
        return None
    has_epsilon = all(math.isfinite(float(record["epsilon"])) for record in records)
    across, key = ("epsilon so far", "epsilon") if has_epsilon else ("step", "step")
    points = [(float(record[key]), float(record["val_accuracy"])) for record in records]
    shares = [share for _, share in points]
    return LineChart(
        name="accuracy",
        title=f"Validation accuracy against {across}",
        description=(
            f"Validation accuracy goes from {min(shares):.1%} at its lowest to {max(shares):.1%} at its "
            f"highest and ends at {shares[-1]:.1%}, where the {across} is {points[-1][0]:.4g}."
        ),
        points=points,
        x=Axis(label=across, ticks=choose_ticks(0, points[-1][0])),
        y=share_axis("validation accuracy", shares),
    )
