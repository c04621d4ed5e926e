"""What a report says in words about the guarantee, beyond the statement of the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushgraph.privacy.guarantee import digits_up, sentence, statement

if TYPE_CHECKING:
    from hushgraph.privacy.plan import PrivacyPlan
    from hushgraph.runs.folder import RunFolder

LABELS = {
    "holds": "The guarantee holds",
    "claimed": "Claimed by the paper, not a guarantee",
    "seeded": "Reproducible, not private",
    "none": "Not private",
}
# Paragraphs of the statement that name their topic, up to a colon; the others are told by how they begin.
_NAMED = ("What ", "Against what ", "Why not ")
_HEADINGS = {"Training reads no edges": "Edges", "An undirected edge": "Hiding that an edge exists at all"}
_ACCOUNTANTS = {
    "pair": "by composing the privacy loss of the worst pair of outcomes one step can have, numerically and "
    "rounded up",
    "paper": "by the paper's theorem, in Renyi divergences over a grid of orders",
}
_TORCH_NOISE = (
    "The noise comes from torch's generator, seeded by the operating system; the figures take it for "
    "true randomness, and sums of floating-point numbers for sums of real ones."
)
_SECURE_NOISE = (
    "Noise and batches come from cryptographic generators. The noise is drawn exactly, in whole steps of a "
    "grid, and is wider than stated by what rounding can change; the figures take these generators for true "
    "randomness, and that float32 rounds the sum of a batch by no more than was allowed for."
)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Which of four kinds of run this is, and its sentence."""

    kind: str
    label: str
    sentence: str


def standing(plan: PrivacyPlan, *, seeded: bool) -> Standing:
    """What a reader must know first."""
    if seeded:
        kind = "seeded"
        text = (
            "Nothing is guaranteed: the seed is fixed, and whoever knows it can take the noise away again. "
            "The run is reproducible, not private."
        )
        if plan.guarantee != "holds":
            text += f" Nor would it be guaranteed without the seed. {sentence(plan)}"
    else:
        kind = {"holds": "holds", "claimed by the paper": "claimed", "none": "none"}[plan.guarantee]
        text = sentence(plan)
    return Standing(kind=kind, label=LABELS[kind], sentence=text)


def topics(plan: PrivacyPlan) -> list[tuple[str, str]]:
    """The statement after its first sentence: heading and text of each paragraph."""
    found = []
    for paragraph in statement(plan).split("\n\n")[1:]:
        if paragraph.startswith(_NAMED):
            heading, _, text = paragraph.partition(": ")
        else:
            heading = next((h for start, h in _HEADINGS.items() if paragraph.startswith(start)), "Note")
            text = paragraph
        found.append((heading, text[:1].upper() + text[1:]))
    return found


def assumptions(plan: PrivacyPlan, *, secure_noise: bool = False) -> list[str]:
    """What the figures rest on; nothing where there are none."""
    if plan.guarantee == "none":
        return []
    draw = (
        f"every training node is in the batch with probability {plan.sampling_rate:.6g}, whatever the "
        "others do"
        if plan.batches == "poisson"
        else f"the batch is {plan.batch_size:,} training nodes, drawn without replacement"
    )
    bound = (
        "by thresholds read off private gradients"
        if plan.clipping == "percentile"
        else f"by {plan.clip:g} in norm"
    )
    deviation = f"{digits_up(plan.sigma_over_clip, digits=6)} times that bound"
    return [
        "Nothing is assumed about the attacker: they may know every other row and all settings, see the "
        "trained weights and every update on the way to them, and have any amount of time.",
        "Whoever runs the training is trusted: they see the data.",
        f"In each of the {plan.steps:,} steps {draw}; the gradient of each is bounded {bound}; to their sum "
        f"Gaussian noise is added whose standard deviation is {deviation}. What the steps cost is added up "
        f"{_ACCOUNTANTS[plan.accountant]}.",
        _SECURE_NOISE if secure_noise else _TORCH_NOISE,
        "The number of features and classes and whether the graph is directed are treated as public.",
        "Every step was written to the ledger before it was taken, and the ledger is complete: its digest is "
        "at the end of this page.",
    ]


def not_covered(folder: RunFolder, result: dict[str, Any]) -> list[str]:
    """What is on this page or near it that the guarantee, if there is one, does not speak of."""
    found = [
        "Accuracies on this page: they are computed from validation and test labels, and from neighbours in "
        "the clear. Take them out before publishing the page where those must stay private.",
        "Other runs on the same data: each of them costs its own epsilon, and the costs add up.",
        "How long training took: a step may take longer with other data.",
    ]
    if folder.config.symmetrize:
        found.append(
            "Rows of the data as it was given: the graph was symmetrized when it was read, so an edge is two "
            "records, one in the row of each end. The guarantee is about rows of that graph; the edges that "
            "one node listed are in the rows of others too."
        )
    if "train_accuracy" in result and folder.plan.is_private:
        found.append("The accuracy on training nodes, which was asked for: it is a private figure.")
    return found
