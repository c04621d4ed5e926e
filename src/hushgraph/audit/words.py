"""An audit in plain words."""

from __future__ import annotations

from hushgraph._text import digits_up, rounded_up
from hushgraph.audit.attack import Audit
from hushgraph.audit.faults import FAULTS

CANARY_WORDS = {
    "strongest": "a row that changes as many trees as the plan allows, its own among them",
    "read": "a row outside the training split, which training reaches through edges only",
    "hub": "a row whose emptying lets others read what they could not read before",
}


def rounded_down(value: float) -> str:
    """A lower bound as text, never larger than it is."""
    return f"{int(value * 100) / 100:.2f}"


def rows(audit: Audit) -> list[tuple[str, str]]:
    """Names and figures, side by side: what was found, what is claimed."""
    plan, found = audit.plan, audit.found
    percent = f"{100 * found.confidence:g}%"
    return [
        (f"lower bound ({percent} confidence)", rounded_down(found.epsilon)),
        ("claimed epsilon", rounded_up(audit.claimed)),
        ("delta", digits_up(plan.delta)),
        ("guarantee", audit.guarantee),
        ("most these trials can show", rounded_down(found.most)),
        ("trials", f"{audit.trials} with the row, {audit.trials} without; half choose the threshold"),
        ("event seen", f"{found.hits} of {found.trials}, false alarms {found.false_alarms}"),
        ("canary", f"{audit.canary}: {CANARY_WORDS[audit.canary]}"),
        ("shift of the canary", f"{audit.shift:.3f} of at most {audit.shift_at_most:.3f} units of noise"),
        ("model, layers", f"{audit.model}, {plan.num_layers}"),
        ("steps, sampling rate", f"{plan.steps}, {plan.sampling_rate:.4g}"),
        ("changed trees (n)", str(plan.changed_trees)),
        ("sigma / C", digits_up(plan.sigma_over_clip, digits=6)),
        ("broken on purpose", "no" if audit.fault is None else FAULTS[audit.fault].words),
    ]


def verdict(audit: Audit) -> str:
    """One sentence: what the audit shows and what it does not."""
    low, claim = rounded_down(audit.found.epsilon), rounded_up(audit.claimed)
    percent = f"{100 * audit.found.confidence:g}%"
    if audit.exceeds:
        what = "The fault was caught" if audit.fault else "The claim is false"
        return f"{what}: epsilon is above {low} at {percent} confidence, and {claim} is claimed."
    if audit.fault:
        return f"The fault was not caught: {low} was shown of the {claim} that is claimed. Take more trials."
    return (
        f"Epsilon is at least {low} at {percent} confidence, and {claim} is claimed: no contradiction. This "
        "proves nothing about attacks that were not tried; the proof is in the privacy contract."
    )
