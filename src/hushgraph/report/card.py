"""The model card of a run, as Markdown with YAML front matter, and the summary that a notebook shows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hushgraph._files import write_whole
from hushgraph._text import digits_up
from hushgraph.figures.names import KEYS, SPLITS, name_figure
from hushgraph.privacy.units import speak
from hushgraph.report.attributes import write_relations
from hushgraph.report.facts import ACCURACIES, collect_facts, describe_standing
from hushgraph.report.pages import (
    check_outside_release,
    check_target,
    format_epsilon,
    render_template,
)
from hushgraph.report.report import list_epsilons, name_model, name_published_data
from hushgraph.report.results import are_covered, format_result, name_standing

if TYPE_CHECKING:
    from hushgraph.runs.folder import RunFolder

# Near the beginning of every card of ours.
_MARKS = {".md": b"library_name: hushgraph"}
# Characters that Markdown gives a meaning to.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&-])")


def write_card(
    folder: RunFolder,
    path: str | os.PathLike[str],
    *,
    accuracy: bool = False,
    about: str | os.PathLike[str] | None = None,
) -> None:
    """Write the model card of a finished run.

    Args:
        folder: the run on disk.
        path: ends in .md; hubs expect README.md.
        accuracy: whether exact accuracies are in it, which the guarantee does not cover; covered ones are.
        about: a TOML file that may declare what the data is called; see `read_about`.

    Guarantees:
        A file that is not a model card of hushgraph is never replaced.
    """
    place = check_target(path, _MARKS, what="a model card")
    if accuracy and folder.plan.evaluation_charge is None:
        check_outside_release(folder, place, what="a card with exact accuracies")
    write_whole(place, render_card(folder, accuracy=accuracy, about=about).encode())


def render_card(
    folder: RunFolder,
    *,
    accuracy: bool = False,
    figures: Mapping[str, Any] | None = None,
    about: str | os.PathLike[str] | None = None,
) -> str:
    """Render the model card of a finished run.

    Args:
        folder: the run on disk.
        accuracy: whether exact accuracies are in it; covered ones are.
        figures: covered figures, where they are known from the noisy tables; those of the result otherwise.
        about: a TOML file that may declare what the data is called.

    Guarantees:
        Without `accuracy`, everything in it is public or covered by epsilon: settings, declared names, the
        plan and its price. Exact accuracies, how long training took, and the name of the file that the data
        came from are left out.
    """
    facts = collect_facts(folder, about=about)
    facts["result"] |= figures or {}
    text = render_template(
        "card.md",
        facts=facts,
        model=name_model(facts),
        data=name_published_data(facts),
        escape=escape_markdown,
        standing=facts["standing"],
        figures=[*list_epsilons(facts), ("delta", digits_up(facts["guarantee"]["delta"]))],
        relations=write_relations(facts["attributes"]["relations"]).strip(),
        shown=_list_figures(facts) if accuracy or are_covered(facts["result"]) else {},
        format_result=format_result,
        figures_are_covered=are_covered(facts["result"]),
        # The page has a line about accuracies on it; the card has a section.
        not_covered=[item for item in facts["not_covered"] if not item.startswith(ACCURACIES)],
    )
    return speak(text, facts["unit"]).rstrip() + "\n"


def render_summary(folder: RunFolder, result: Mapping[str, Any], *, is_temporary: bool) -> str:
    """Render what a notebook shows of a run: standing, figures and the sentence, as an HTML fragment.

    Args:
        folder: the run.
        result: its summary.
        is_temporary: whether its folder goes when the run does.
    """
    guarantee, judged_by = folder.guarantee, folder.task.judged_by
    figure = KEYS.get(judged_by, judged_by)
    rows = [
        ("epsilon", format_epsilon(guarantee.epsilon)),
        ("delta", digits_up(guarantee.delta)),
        ("guarantee", guarantee.kind_in_words),
        ("predictions", str(result.get("predictions", "not covered"))),
        (f"test {name_figure(figure)} ({name_standing(result)})", format_result(result, f"test_{figure}")),
    ]
    return render_template(
        "summary.html",
        standing=describe_standing(guarantee),
        rows=rows,
        folder=str(folder.path),
        is_temporary=is_temporary,
    )


def escape_markdown(text: str) -> str:
    """Return text on one line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _list_figures(facts: Mapping[str, Any]) -> dict[str, str]:
    """Map the result's keys for the figure by which the task is judged to their names."""
    figure = facts["judged_by"]
    named = {f"{split}_{figure}": f"{words} {name_figure(figure)}" for split, words in SPLITS.items()}
    return {key: name for key, name in named.items() if key in facts["result"]}
