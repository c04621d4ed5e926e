"""The facts of a finished run as JSON values: the report page and its JSON twin are both made from them."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hushgraph._text import digits_up, rounded_up
from hushgraph.errors import RunError
from hushgraph.figures.names import KEYS
from hushgraph.privacy.guarantee import (
    FIXED_SEED,
    Guarantee,
    describe_guarantee,
    judge_size,
    name_assumed,
    write_assumptions,
)
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import json_number
from hushgraph.privacy.units import speak
from hushgraph.report.about import read_about
from hushgraph.report.attack import read_audit
from hushgraph.report.attributes import describe_attributes
from hushgraph.report.budget import describe_budget
from hushgraph.report.pages import format_guess
from hushgraph.report.results import are_covered
from hushgraph.report.strength import describe_replacement, describe_strength
from hushgraph.tasks.classes import ClassEvaluation

if TYPE_CHECKING:
    from hushgraph.privacy.plans import PrivacyPlan
    from hushgraph.runs.folder import RunFolder
    from hushgraph.tasks.task import Evaluation

FORMAT = 1
ACCURACIES = "Exact accuracies on this page"
"""How the line about them begins, which a model card leaves out."""
_LABELS = {
    "holds": "The guarantee holds",
    "claimed": "Claimed by the paper, not a guarantee",
    "seeded": "Reproducible, not private",
    "broken": "No guarantee",
    "none": "Not private",
}
_ACCOUNTANTS = {
    "pair": "The accountant composes the privacy loss of the worst pair of outcomes that one step can have, "
    "numerically and rounded up.",
    "paper": "The accountant composes the steps by the paper's theorem, in Rényi divergences over a grid of "
    "orders.",
}
_EXACT_NOISE = (
    "Noise and batches come from cryptographic generators. The noise is drawn exactly, on a grid that does "
    "not depend on the data, and is wider than stated by what rounding can change of a sum, which is proven. "
    "Epsilon assumes that these generators cannot be told from true randomness."
)
_READING_EDGES = (
    " As training reads edges, it also assumes that 32-bit arithmetic gives the rows of an unchanged tree "
    "the same numbers wherever they stand in a batch."
)


# What speaks of nodes and rows, and of persons where they are protected.
_IN_UNITS = ("standing", "words", "charges", "figures", "strength", "rests_on", "not_covered", "warnings")


def collect_facts(
    folder: RunFolder,
    *,
    evaluation: Evaluation | None = None,
    comparison: Mapping[str, Any] | None = None,
    about: str | os.PathLike[str] | None = None,
    audit: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Collect everything the report of a finished run says.

    A folder that holds only what was released has no ledger, no metrics and no timings: what they would say
    is left out.

    Args:
        folder: the run on disk.
        evaluation: results on its test split, for accuracies per class.
        comparison: the comparison it belongs to, as `Comparison.to_json` writes it.
        about: a TOML file with what only people know; see `read_about`.
        audit: the record of an audit; by default `audit.json` in the folder, if it is there.
    """
    folder.check_finished()
    plan, config, guarantee = folder.plan, folder.config, folder.guarantee
    # The plan decides what is covered; result.json can be edited.
    stated = plan.summary() | describe_guarantee(guarantee)
    result = folder.result() | {key: stated[key] for key in ("figures", "predictions")}
    spending = _read_spending(folder)
    strength = describe_strength(guarantee)
    has_exact = evaluation is not None or any(each["val_accuracy"] is not None for each in spending)
    facts = {
        "report": FORMAT,
        "unit": plan.protects,
        "number_unit": folder.unit,
        "written": format_now(),
        "data": folder.data if comparison is None else comparison["data"],
        "standing": describe_standing(guarantee, comparison),
        "covers": guarantee.statement.covers,
        "words": _summarise_words(plan),
        "charges": _summarise_charges(plan),
        "figures": [list(row) for row in plan.list_figures()],
        "statement": [asdict(topic) for topic in guarantee.statement.topics],
        "guarantee": _summarise_guarantee(plan, guarantee),
        "guarantee_details": guarantee.to_json(),
        "assumptions": write_assumptions(guarantee.assumptions),
        "strength": strength,
        "rests_on": _list_grounds(folder, strength),
        "not_covered": _list_not_covered(folder, result, has_exact=has_exact),
        "budget": describe_budget(folder.budget),
        "attributes": describe_attributes(folder),
        "audit": read_audit(folder, audit),
        "about": read_about(about),
        "declared": [] if folder.columns is None else folder.columns.describe_clean_up(),
        "warnings": list(folder.warnings),
        "result": result,
        "spending": spending,
        # What is released before the first step costs; 0 where nothing is.
        "epsilon_before_steps": json_number(plan.epsilon_after(0)) if len(plan.charges) > 1 else 0.0,
        # The keys of the result that the task is judged by, behind val_ and test_.
        "judged_by": KEYS.get(folder.task.judged_by, folder.task.judged_by),
        "task": {"question": folder.task.question, "answer": folder.task.answer, "hub": folder.task.hub_task},
        "class_names": None if folder.class_names is None else list(folder.class_names),
        "test": None if evaluation is None else _summarise_test(folder, evaluation),
        "comparison": None if comparison is None else dict(comparison),
        "plan": json.loads(plan.to_json()),
        "config": json.loads(config.to_json()),
        "shape": {"features": folder.num_features, "classes": folder.num_classes},
        "versions": _read_versions(folder),
        "ledger": _summarise_ledger(folder),
    }
    return facts | {name: speak(facts[name], plan.protects) for name in _IN_UNITS}


def describe_standing(guarantee: Guarantee, comparison: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return what a reader must know first: the kind of run, its label, its sentence and its caveat.

    Beside them: what all private models of a comparison cost `together`; what the `size` of epsilon means,
    where it is large; how often a `guess` can be right, and what one `edge` costs, where the guarantee holds;
    and the `level`, which colours the page: the kind, or "large" or "huge".
    """
    if guarantee.kind == "holds":
        kind = "holds"
    elif guarantee.kind == "claimed by the paper":
        kind = "claimed"
    elif FIXED_SEED in guarantee.why:
        kind = "seeded"
    else:
        # A finite price with no guarantee: there is noise, and something undoes it.
        kind = "broken" if math.isfinite(guarantee.priced_epsilon) else "none"
    level, together, name = kind, "", "epsilon"
    label = _LABELS[kind] + (name_assumed(guarantee.assumptions) if kind == "holds" else "")
    epsilon, delta = guarantee.epsilon, guarantee.delta
    if comparison is not None:
        total = comparison["release_all"]
        epsilon, delta = float(total["epsilon"]), total["delta"]
        all_models = f"all {total['models']} private models on this page together"
        name = f"epsilon of {all_models}"
        together = f"Publishing {all_models} has no proven cost."
        if math.isfinite(epsilon):
            together = (
                f"Publishing {all_models} costs epsilon = {rounded_up(epsilon)} at delta = "
                f"{digits_up(delta)} ({total['composition']})."
            )
        elif kind == "holds":
            level, label = "none", "No guarantee for all private models together"
    size = judge_size(epsilon, delta, name=name) if kind in ("holds", "claimed") else None
    if size is not None and (kind == "holds" or size.level == "huge"):
        level, label = size.level, f"{label}, but epsilon is {size.level}"
    return {
        "kind": kind,
        "level": level,
        "label": label,
        "together": together,
        "sentence": guarantee.statement.sentence,
        "size": "" if size is None else f"{size.sentence[0].upper()}{size.sentence[1:]}.",
        "caveat": guarantee.statement.caveat,
        # Where epsilon is large, its size is told by the same guess.
        "guess": _describe_guess(guarantee) if kind == "holds" and (not size or comparison) else "",
        "edge": _describe_edge(guarantee) if kind == "holds" else "",
    }


def _describe_guess(guarantee: Guarantee) -> str:
    return (
        f"An attacker who sees {guarantee.statement.covers}, knows everything else, and guesses whether one "
        f"row is empty is right at most {format_guess(guarantee.best_guess)} of the time at even odds; "
        "a blind guess is right 50% of the time."
    )


def _describe_edge(guarantee: Guarantee) -> str:
    """Say what hiding one edge costs, which may be more than a row does."""
    edge = guarantee.epsilon_edge
    name = f"One {guarantee.plan.edge_name}, everything else kept"
    if edge is None:
        return f"{name}: no bound on epsilon is derived."
    if edge == 0:
        return f"{name}: epsilon is 0, because training reads no edges."
    return f"{name}: epsilon is at most {rounded_up(edge)}, at the same delta."


def format_now() -> str:
    """Return the date and time in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _summarise_guarantee(plan: PrivacyPlan, guarantee: Guarantee) -> dict[str, Any]:
    """Return the figures of the plan, with epsilon infinite where nothing is guaranteed."""
    return {
        **plan.summary(),
        "epsilon": json_number(guarantee.epsilon),
        "epsilon_group_of_two": json_number(guarantee.epsilon_group_of_two),
        "guarantee": guarantee.kind,
        "guarantee_without_seed": plan.guarantee,
        "best_guess": guarantee.best_guess,
    }


def _summarise_words(plan: PrivacyPlan) -> dict[str, Any]:
    """Return what the method says about itself, beside the statement."""
    names = ("title", "records", "predicts_from", "example")
    words = {name: getattr(plan.words, name) for name in names}
    return {**words, "terms": [list(term) for term in plan.words.terms]}


def _summarise_charges(plan: PrivacyPlan) -> list[dict[str, Any]]:
    """Return what the run releases, with the part of the budget that each gets; shares need noise."""
    shares = plan.list_shares() if plan.guarantee != "none" else [None] * len(plan.charges)
    return [
        {
            "name": charge.name,
            "times": charge.times,
            "is_step": charge.is_step,
            "bounds": list(charge.bounds),
            "sentence": charge.sentence,
            "share": share,
        }
        for charge, share in zip(plan.charges, shares, strict=True)
    ]


def _list_grounds(folder: RunFolder, strength: Mapping[str, Any] | None) -> list[str]:
    """List what epsilon rests on; nothing where there is no epsilon."""
    plan = folder.plan
    if plan.guarantee == "none":
        return []
    bound = (
        "thresholds that are percentiles of private gradients"
        if plan.clipping == "percentile"
        else f"norm {plan.clip:g}"
    )
    end = "whoever trained has it" if folder.is_release else "its digest is at the end of this page"
    return [
        "Nothing is assumed about the attacker, who may know every other row and all settings, see the "
        "trained weights and every update on the way to them, and compute without limits.",
        'The model of trust is "central": whoever runs the training is trusted, because they see the data. '
        "The guarantee is towards those who get what is released.",
        *([] if strength is None else [describe_replacement(strength)]),
        *(charge.sentence for charge in plan.charges),
        f"Gradients are clipped to {bound}. {_ACCOUNTANTS[plan.accountant]}",
        _EXACT_NOISE + (_READING_EDGES if plan.reads_edges else ""),
        "The number of features and what labels can be (a list, or bounds) are treated as public.",
        f"Every step was written to the ledger before it was taken, and the ledger is complete: {end}.",
    ]


def list_uncovered(folder: RunFolder, result: Mapping[str, Any]) -> list[str]:
    """List what the guarantee does not speak of, apart from what a page shows."""
    # Covered figures come from noisy tables, which are charged to the rows of these splits.
    covered = "Labels of validation and test nodes" if are_covered(result) else None
    items = folder.guarantee.statement.not_covered
    return [item for item in items if covered is None or not item.startswith(covered)]


def _list_not_covered(folder: RunFolder, result: Mapping[str, Any], *, has_exact: bool) -> list[str]:
    """List what this run shows that the guarantee, if there is one, does not speak of."""
    items = list_uncovered(folder, result)
    clear = "" if folder.plan.covers_predictions else ", and from neighbours in the clear"
    if has_exact or not are_covered(result):
        items.append(
            f"{ACCURACIES}: they are computed from validation and test labels{clear}. Remove them before "
            "publishing the page where those must stay private."
        )
    items.append("Other runs on the same data: each of them costs its own epsilon, and the costs add up.")
    if "seconds" in result:
        items.append("How long training took: a step may take longer with other data.")
    if folder.config.symmetrize:
        items.append(
            "Rows of the data as it was given: the graph was symmetrized when it was read, so an edge is two "
            "records, one in the row of each end. The guarantee is about rows of that graph. The edges that "
            "one node listed are in the rows of others too."
        )
    if "train_accuracy" in result and folder.plan.is_private:
        items.append("The accuracy on training nodes, which was asked for: it is a private figure.")
    return items


def _read_spending(folder: RunFolder) -> list[dict[str, Any]]:
    """Read epsilon and validation accuracy by step; of a step that was recorded twice, the later record."""
    from hushgraph.runs.result import read_metrics

    records = {line["step"]: line for line in read_metrics(folder.path)}
    # The last line of a run with covered figures alone has one of those.
    is_exact = folder.plan.evaluation_charge is None or folder.config.exact_figures
    keys = ("step", "epsilon", "val_accuracy") if is_exact else ("step", "epsilon")
    return [
        {"val_accuracy": None} | {key: records[step].get(key) for key in keys} for step in sorted(records)
    ]


def _summarise_test(folder: RunFolder, evaluation: Evaluation) -> dict[str, Any]:
    if not isinstance(evaluation, ClassEvaluation):
        return dict(evaluation.figures)
    counts, shares = evaluation.class_counts, evaluation.class_accuracy
    names = folder.class_names or [str(number) for number in range(len(counts))]
    classes = [
        {
            "class": number,
            "name": name,
            "nodes": int(count),
            "accuracy": None if math.isnan(share) else float(share),
        }
        for number, (name, count, share) in enumerate(zip(names, counts, shares, strict=True))
    ]
    return {**evaluation.figures, "classes": classes}


def _read_versions(folder: RunFolder) -> dict[str, str]:
    """Return the versions that trained; none where the folder does not tell."""
    if not (folder.path / "run.json").exists():
        return {}
    try:
        about = json.loads((folder.path / "run.json").read_text())
        return {str(name): str(value) for name, value in about["versions"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise RunError(f"run={folder.path}: run.json is damaged ({error!r}); restore it") from None


def _summarise_ledger(folder: RunFolder) -> dict[str, Any] | None:
    """Return what was paid, and a digest that identifies the ledger file; None of a release."""
    if folder.is_release:
        return None
    ledger = Ledger.open(folder.ledger_path, plan=folder.plan, read_only=True)
    return {
        "sha256": hashlib.sha256(folder.ledger_path.read_bytes()).hexdigest(),
        "plan": ledger.fingerprint,
        "steps_charged": ledger.steps_charged,
        "epsilon_spent": json_number(ledger.spent_epsilon()),
        "delta": ledger.delta,
    }
