"""How much more noise is added than planned, to make up for rounding: by the number of training nodes.

    python benchmarks/noise_widening.py > benchmarks/records/noise_widening.txt

Models have 200,000 parameters; every graph has twice as many nodes as training nodes. The figures follow from
proven bounds (docs/secure-noise.md); nothing is measured. Exit code 1 where one is above 1.005.
"""

from __future__ import annotations

from typing import Any

from hushgraph.gradients.sums import sum_error
from hushgraph.noise.source import ExactNoise
from hushgraph.privacy.plans import TreePlan

PARAMETERS = 200_000
LIMIT = 1.005
SETTINGS: dict[str, dict[str, Any]] = {
    "billboard, MLP or K = 0": {"num_layers": 0, "max_readers": 0},
    "1 layer, K = 7, D = 16": {"num_layers": 1, "max_readers": 7, "max_reads": 16},
    "1 layer, K = 7, any D": {"num_layers": 1, "max_readers": 7, "max_reads": None},
    "2 layers, K = 3, D = 16": {"num_layers": 2, "max_readers": 3, "max_reads": 16},
    "3 layers, K = 3, D = 16": {"num_layers": 3, "max_readers": 3, "max_reads": 16},
}


def widening(roots: int, **settings: Any) -> float:
    """The standard deviation that is added, as a part of the planned one."""
    plan = TreePlan(num_train_nodes=roots, batch_size=roots, steps=100, **settings)
    plan = plan.with_paper_noise(4.0)
    error = sum_error(num_roots=roots, num_rows=plan.most_lines(2 * roots))
    return ExactNoise(sigma_over_clip=plan.sigma_over_clip, sum_error=error).widening(PARAMETERS)


def main() -> None:
    largest = 0.0
    for name, settings in SETTINGS.items():
        print(f"{name}, {PARAMETERS:,} parameters")
        for roots in (1_000, 10_000, 90_941, 200_000):
            wider = widening(roots, **settings)
            largest = max(largest, wider)
            print(f"  {roots:7,} training nodes: {wider:.5f}")
    print(f"at most {largest:.5f}")
    raise SystemExit(largest > LIMIT)


if __name__ == "__main__":
    main()
