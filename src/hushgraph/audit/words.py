"""An audit in plain words."""

from __future__ import annotations

from hushgraph._text import digits_up, rounded_up
from hushgraph.audit.faults import FAULTS
from hushgraph.audit.result import Attack, Audit
from hushgraph.privacy.guarantee import name_kind

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


def list_entries(audit: Audit) -> list[tuple[str, str]]:
    """Names and figures, side by side: what was found, what is claimed."""
    plan, event, curve = audit.plan, audit.by_event, audit.by_curve
    percent = _percent(audit)
    bounds = []
    if curve is not None:
        bounds.append((f"lower bound ({percent} confidence)", rounded_down(curve.epsilon)))
        bounds.append(("  it assumes", _FAMILY_WORDS[curve.family]))
    bounds.append((f"lower bound, no assumption ({percent})", rounded_down(event.epsilon)))
    return [
        ("attacked", audit.name),
        *bounds,
        ("claimed epsilon", rounded_up(audit.claimed)),
        ("delta", digits_up(plan.delta)),
        ("guarantee", name_kind(audit.guarantee, audit.assumptions)),
        *((attack.name, _beside_claim(attack)) for attack in audit.attacks),
        *_list_others(audit),
        *_list_checks(audit),
        ("most these trials can show without assumption", rounded_down(event.most)),
        ("trials", f"{audit.trials} with the row, {audit.trials} without; a fifth chooses the threshold"),
        *_list_numbers(audit),
        ("canary", _describe_canary(audit)),
        ("shift of the canary", f"{audit.shift:.3f} of at most {audit.shift_at_most:.3f} units of noise"),
        ("model", audit.model),
        *plan.list_own_figures(),
        ("steps, sampling rate", f"{plan.steps}, {plan.sampling_rate:.4g}"),
        ("sigma / C", digits_up(plan.sigma_over_clip, digits=6)),
        ("broken on purpose", "no" if audit.fault is None else FAULTS[audit.fault].words),
    ]


def _percent(audit: Audit) -> str:
    """Format the joint confidence of all bounds, which is what the caller asked for."""
    errors = (1 - audit.by_event.confidence) * (1 + len(audit.attacks))
    return f"{100 * (1 - errors):.4g}%"


def _beside_claim(attack: Attack) -> str:
    return f"{rounded_down(attack.lower_bound)} of {rounded_up(attack.claimed)} claimed"


def _list_others(audit: Audit) -> list[tuple[str, str]]:
    """Whether other people's predictions are functions of boards, weights and their own rows."""
    if audit.others_changed is None:
        return []
    name = "others, same boards and weights"
    if audit.others_changed:
        return [(name, f"{audit.others_changed} readings or predictions of other rows change")]
    return [(name, "unchanged, bit for bit")]


def _list_checks(audit: Audit) -> list[tuple[str, str]]:
    """Plain checks of what was released: how many hold, and each that does not."""
    if not audit.checks:
        return []
    failed = audit.failed_checks
    rows = [("plain checks of real runs", f"{len(audit.checks) - len(failed)} of {len(audit.checks)} hold")]
    return rows + [(f"  {check.name}", check.failure) for check in failed]


def _describe_canary(audit: Audit) -> str:
    words = CANARY_WORDS.get(audit.canary)
    several = ", that of a person with several nodes" if audit.plan.protects == "person" else ""
    if words is None:
        return f"a row of {audit.canary} with a label of its own, emptied{several}"
    return f"{audit.canary}: {words}{several}"


def _list_numbers(audit: Audit) -> list[tuple[str, str]]:
    """What attacks on floating-point numbers found, if they were tried."""
    numbers = audit.numbers
    if numbers is None:
        return []
    best = numbers.strongest
    share = f"{best.right} of {best.trials} guesses right by {best.attack}, {best.view}"
    return [("attacks on digits", f"{share}; the guarantee allows {100 * numbers.limit:.1f}%")]


def verdict(audit: Audit) -> str:
    """One sentence: what the audit shows and what it does not."""
    what = "The fault was caught" if audit.fault else "The claim is false"
    percent = _percent(audit)
    if audit.bound_exceeds:
        worst = max([audit, *audit.attacks], key=lambda attack: attack.most_shown - attack.claimed)
        return (
            f"{what}: epsilon is above {rounded_down(worst.most_shown)} at {percent} confidence, and "
            f"{rounded_up(worst.claimed)} is claimed ({worst.name})."
        )
    if audit.others_changed:
        return f"{what}: other people's readings change with one row, though boards and weights do not."
    if audit.numbers is not None and audit.numbers.exceeds:
        best = audit.numbers.strongest
        return (
            f"{what}: the digits of released numbers tell whether a row is empty. The attack {best.attack} "
            f"was right {best.right} of {best.trials} times, and the guarantee allows "
            f"{100 * audit.numbers.limit:.1f}%."
        )
    if audit.failed_checks:
        first = audit.failed_checks[0]
        return f"{what}: {first.name}: {first.failure}."
    low, claim = rounded_down(audit.lower_bound), rounded_up(audit.claimed)
    if audit.fault:
        return f"The fault was not caught: {low} was shown of the {claim} that is claimed. Take more trials."
    return (
        f"Epsilon is at least {low} at {percent} confidence, and {claim} is claimed: no contradiction. This "
        "proves nothing about attacks that were not tried; the proof is in the privacy contract."
    )
