"""What a report says, as plain JSON values: the page and its twin are both made from these."""

from __future__ import annotations

import hashlib
import json
import math
import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hushgraph.errors import RunError
from hushgraph.privacy.ledger import Ledger
from hushgraph.report import words
from hushgraph.runs.folder import RunFolder
from hushgraph.training.run import Run

if TYPE_CHECKING:
    from hushgraph.comparison import Comparison
    from hushgraph.privacy.plan import PrivacyPlan

FORMAT = 1


def facts(
    source: Run | str | os.PathLike[str], *, data: Any = None, comparison: Comparison | None = None
) -> dict[str, Any]:
    """Everything the report of a finished run says.

    Args:
        source: a run, or the folder of one.
        data: what it was trained on, for results per class.
        comparison: what `compare` gave, where there is one.
    """
    folder = finished(source)
    plan, result = folder.plan, folder.result()
    missing = [key for key in ("val_accuracy", "test_accuracy", "seconds", "device") if key not in result]
    if missing:
        raise RunError(f"run={folder.path}: result.json has no {missing[0]}; restore it")
    seeded = folder.config.seed is not None and plan.is_private
    standing = words.standing(plan, seeded=seeded)
    return {
        "report": FORMAT,
        "written": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "data": folder.data if comparison is None else comparison.data,
        "standing": {"kind": standing.kind, "label": standing.label, "sentence": standing.sentence},
        "statement": [{"heading": heading, "text": text} for heading, text in words.topics(plan)],
        "guarantee": {
            **plan.summary(),
            "guarantee": "none" if seeded else plan.guarantee,
            "guarantee_without_seed": plan.guarantee,
            "best_guess": best_guess(plan) if standing.kind == "holds" else 1.0,
        },
        "assumptions": words.assumptions(plan, secure_noise=folder.config.secure_noise),
        "not_covered": words.not_covered(folder, result),
        "result": result,
        "spending": _spending(folder),
        "test": _test(source, data),
        "comparison": None if comparison is None else json.loads(comparison.to_json()),
        "plan": json.loads(plan.to_json()),
        "config": json.loads(folder.config.to_json()),
        "shape": {"features": folder.num_features, "classes": folder.num_classes},
        "versions": _versions(folder),
        "ledger": _ledger(folder),
    }


def finished(source: Run | str | os.PathLike[str]) -> RunFolder:
    """The folder of a run, refused where the run is not done."""
    folder = source.folder if isinstance(source, Run) else RunFolder.open(source)
    folder.check_finished()
    return folder


def best_guess(plan: PrivacyPlan) -> float:
    """The most often that anybody can be right about whether one row is empty, when both are equally likely.

    The weights that training gives differ between the two cases by a total variation of at most
    (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), and the best guess is right half as often as not, plus half
    of that. 1 where nothing is guaranteed.
    """
    if math.isinf(plan.epsilon):
        return 1.0
    odds = math.exp(-plan.epsilon)
    return min(1.0, (1.0 + plan.delta * odds) / (1.0 + odds))


def _spending(folder: RunFolder) -> list[dict[str, Any]]:
    """Epsilon and validation accuracy by step; of a step that was recorded twice, the later record."""
    found = {line["step"]: line for line in folder.metrics() if _is_metric(line)}
    return [
        {key: found[step].get(key) for key in ("step", "epsilon", "val_accuracy")} for step in sorted(found)
    ]


def _is_metric(line: Any) -> bool:
    """Whether a line of metrics.jsonl is what a run writes; others are left out, as torn ones are."""
    if not isinstance(line, dict) or not isinstance(line.get("step"), int):
        return False
    epsilon, accuracy = line.get("epsilon"), line.get("val_accuracy")
    return (epsilon == "inf" or _is_finite(epsilon)) and (accuracy is None or _is_finite(accuracy))


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _test(source: Run | str | os.PathLike[str], data: Any) -> dict[str, Any] | None:
    if data is None:
        return None
    run = source if isinstance(source, Run) else Run.load(source)
    found = run.evaluate(data)
    if found is None:
        return None
    names = run.folder.class_names or [str(number) for number in range(len(found.class_counts))]
    classes = [
        {
            "class": number,
            "name": name,
            "nodes": int(count),
            "accuracy": None if math.isnan(part) else float(part),
        }
        for number, (name, count, part) in enumerate(
            zip(names, found.class_counts, found.class_accuracy, strict=True)
        )
    ]
    return {"accuracy": found.accuracy, "macro_f1": found.macro_f1, "classes": classes}


def _versions(folder: RunFolder) -> dict[str, str]:
    try:
        about = json.loads((folder.path / "run.json").read_text())
        return {str(name): str(value) for name, value in about["versions"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise RunError(f"run={folder.path}: run.json is damaged ({error!r}); restore it") from None


def _ledger(folder: RunFolder) -> dict[str, Any]:
    """What was paid, and the digest by which the file can be known again."""
    ledger = Ledger.open(folder.ledger_path, plan=folder.plan, read_only=True)
    spent = ledger.spent_epsilon()
    return {
        "sha256": hashlib.sha256(folder.ledger_path.read_bytes()).hexdigest(),
        "plan": ledger.fingerprint,
        "steps_charged": ledger.steps_charged,
        "epsilon_spent": "inf" if math.isinf(spent) else spent,
        "delta": ledger.delta,
    }
