"""Write or compare a golden record: the epsilons of 28 plans and the weights of a seeded run of every model.

    python scripts/golden.py write      keep what this version gives
    python scripts/golden.py check      compare bit for bit with what was kept

Both are compared on the kind of machine that the record names: another processor may round differently in the
last bit.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

import hushgraph as hg
from hushgraph.privacy.plans import BillboardPlan

RECORD = Path(__file__).parent.parent / "tests" / "data" / "golden.json"
_N = 90_941
FIGURES = ("epsilon", "epsilon_group_of_two", "epsilon_edge", "epsilon_label", "sigma_over_clip")


def measure_plans() -> list[dict[str, Any]]:
    """28 plans of all kinds, each with its epsilons and noise as hexadecimal floats."""
    settings: list[dict[str, Any]] = []
    for owner in ("sender", "reader"):
        for layers, readers, size in ((1, 7, 10_000), (1, 10, 10_000), (2, 3, 20_000), (1, 0, _N)):
            settings.append(
                {"edge_owner": owner, "num_layers": layers, "max_readers": readers, "batch_size": size}
            )
    plans = [
        hg.PrivacyPlan(num_train_nodes=_N, max_reads=8, steps=300, **one).calibrated(epsilon=epsilon)
        for one in settings
        for epsilon in (1.0, 8.0)
    ]
    for size, layers in ((10_000, 1), (20_000, 2)):
        for readers in (3, 7):
            plans.append(
                hg.PrivacyPlan(
                    num_train_nodes=_N,
                    num_layers=layers,
                    max_readers=readers,
                    batch_size=size,
                    steps=400,
                    sampler="paper",
                    accountant="paper",
                ).with_paper_noise(2.0)
            )
    for boards in (1, 2):
        for nodes, size, epsilon in ((_N, _N, 1.0), (2000, 2000, 8.0), (_N, 10_000, 1.0), (2000, 500, 8.0)):
            board = BillboardPlan(
                num_train_nodes=nodes, batch_size=size, num_boards=boards, num_classes=7, steps=300
            )
            plans.append(board.calibrated(epsilon=epsilon))
    return [
        {
            "plan": json.loads(plan.to_json()),
            "guarantee": plan.guarantee,
            **{name: getattr(plan, name).hex() for name in FIGURES},
        }
        for plan in plans
    ]


def measure_weights() -> dict[str, str]:
    """A digest of the weights of one short seeded run per model and way of training."""
    torch.set_num_threads(1)
    data = hg.datasets.synthetic(num_nodes=400, num_classes=3, num_features=16, seed=1)
    runs: dict[str, dict[str, Any]] = {
        model: {"model": model, "max_readers": 2, "epsilon": 4.0} for model in ("gcn", "gin", "gat", "mlp")
    }
    runs["gcn-two-layers"] = {"model": "gcn", "num_layers": 2, "max_readers": 2, "epsilon": 4.0}
    runs["gcn-no-edges"] = {"model": "gcn", "max_readers": 0, "epsilon": 4.0}
    runs["gcn-batches"] = {"model": "gcn", "max_readers": 2, "epsilon": 4.0, "batch_size": 50}
    runs["gcn-not-private"] = {"model": "gcn", "private": False}
    runs["gcn-as-published"] = {
        "model": "gcn",
        "max_readers": 2,
        "paper_noise_multiplier": 2.0,
        "sampler": "paper",
        "accountant": "paper",
        "clipping": "percentile",
        "noise": "per-layer",
        "batch_size": 50,
    }
    digests = {}
    for name, settings in runs.items():
        run = hg.train(data, steps=12, hidden=8, seed=7, device="cpu", **settings)
        digest = hashlib.sha256()
        for key, value in sorted(run.model.state_dict().items()):
            digest.update(key.encode() + value.numpy().tobytes())
        digests[name] = digest.hexdigest()
    return digests


def measure() -> dict[str, Any]:
    """Everything that the record holds."""
    return {
        "processor": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "plans": measure_plans(),
        "weights": measure_weights(),
    }


def main() -> int:
    """Write the record or compare with it; 1 where something differs."""
    if sys.argv[1:] == ["write"]:
        RECORD.write_text(json.dumps(measure(), indent=1, sort_keys=True) + "\n")
        return 0
    kept, now = json.loads(RECORD.read_text()), json.loads(json.dumps(measure()))
    for each in kept["plans"]:
        # Kept by an earlier version, whose plans have another format.
        each["plan"] = json.loads(hg.PrivacyPlan.from_json(json.dumps(each["plan"])).to_json())
    differing = [f"plan {place}" for place, plan in enumerate(kept["plans"]) if plan != now["plans"][place]]
    differing += [
        f"weights of {name}" for name in kept["weights"] if kept["weights"][name] != now["weights"][name]
    ]
    differing += [name for name in ("processor", "torch") if kept[name] != now[name]]
    print("differs: " + ", ".join(differing) if differing else "the same, bit for bit")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
