"""An audit in plain words."""

from __future__ import annotations

from hushgraph._text import digits_up, rounded_up
from hushgraph.audit.faults import FAULTS
from hushgraph.audit.result import Audit

CANARY_WORDS = {
    "strongest": "a row that changes as many trees as the plan allows, its own among them",
    "read": "a row outside the training split, which training reaches through edges only",
    "hub": "a row whose emptying lets others read what they could not read before",
}


_FAMILY_WORDS = {
    "gaussian": "the noise is Gaussian, of unknown size",
    "pair": "the noise is Gaussian, of unknown size, and batches are drawn as planned",
}


def rounded_down(value: float) -> str:
    """A lower bound as text, never larger than it is."""
    return f"{int(value * 100) / 100:.2f}"


def rows(audit: Audit) -> list[tuple[str, str]]:
    """Names and figures, side by side: what was found, what is claimed."""
    plan, event, curve = audit.plan, audit.by_event, audit.by_curve
    percent = f"{100 * event.confidence:g}%"
    bounds = []
    if curve is not None:
        bounds.append((f"lower bound ({percent} confidence)", rounded_down(curve.epsilon)))
        bounds.append(("  it assumes", _FAMILY_WORDS[curve.family]))
    bounds.append((f"lower bound, no assumption ({percent})", rounded_down(event.epsilon)))
    return [
        *bounds,
        ("claimed epsilon", rounded_up(audit.claimed)),
        ("delta", digits_up(plan.delta)),
        ("guarantee", audit.guarantee),
        ("most these trials can show without assumption", rounded_down(event.most)),
        ("trials", f"{audit.trials} with the row, {audit.trials} without; a fifth chooses the threshold"),
        *_numbers_rows(audit),
        ("canary", f"{audit.canary}: {CANARY_WORDS[audit.canary]}"),
        ("shift of the canary", f"{audit.shift:.3f} of at most {audit.shift_at_most:.3f} units of noise"),
        ("model, layers", f"{audit.model}, {plan.num_layers}"),
        ("steps, sampling rate", f"{plan.steps}, {plan.sampling_rate:.4g}"),
        ("changed trees (n)", str(plan.changed_trees)),
        ("sigma / C", digits_up(plan.sigma_over_clip, digits=6)),
        ("broken on purpose", "no" if audit.fault is None else FAULTS[audit.fault].words),
    ]


def _numbers_rows(audit: Audit) -> list[tuple[str, str]]:
    """What attacks on floating-point numbers found, if they were tried."""
    numbers = audit.numbers
    if numbers is None:
        return []
    best = numbers.strongest
    share = f"{best.right} of {best.trials} guesses right by {best.attack}, {best.view}"
    return [("attacks on digits", f"{share}; the guarantee allows {100 * numbers.limit:.1f}%")]


def verdict(audit: Audit) -> str:
    """One sentence: what the audit shows and what it does not."""
    shown = audit.lower_bound
    if audit.bound_exceeds and shown <= audit.claimed:
        shown = audit.by_event.epsilon
    low, claim = rounded_down(shown), rounded_up(audit.claimed)
    percent = f"{100 * audit.by_event.confidence:g}%"
    what = "The fault was caught" if audit.fault else "The claim is false"
    if audit.bound_exceeds:
        return f"{what}: epsilon is above {low} at {percent} confidence, and {claim} is claimed."
    if audit.numbers is not None and audit.numbers.exceeds:
        best = audit.numbers.strongest
        return (
            f"{what}: the digits of released numbers tell whether a row is empty. The attack {best.attack} "
            f"was right {best.right} of {best.trials} times, and the guarantee allows "
            f"{100 * audit.numbers.limit:.1f}%."
        )
    if audit.fault:
        return f"The fault was not caught: {low} was shown of the {claim} that is claimed. Take more trials."
    return (
        f"Epsilon is at least {low} at {percent} confidence, and {claim} is claimed: no contradiction. This "
        "proves nothing about attacks that were not tried; the proof is in the privacy contract."
    )
