"""How long a plan's two questions take, and how much the answer moves when the precision is doubled.

Run: python benchmarks/bench_accounting.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hushgraph.accounting.accountants import PairAccountant
from hushgraph.accounting.calibrate import smallest_noise
from hushgraph.accounting.events import PoissonDraw, StepEvent

STEPS = (10, 1000, 10_000)
RATES = (0.001, 0.01, 0.1, 0.5, 1.0)
TREES = (1, 8, 15, 40)
EPSILON, DELTA = 8.0, 1e-6


def timed(question: Callable[[], float]) -> tuple[float, float]:
    """The answer and the seconds it took."""
    start = time.perf_counter()
    answer = question()
    return answer, time.perf_counter() - start


def epsilon(event: StepEvent, steps: int, precision: float) -> float:
    accountant = PairAccountant(precision=precision)
    accountant.compose(event, steps)
    return accountant.epsilon(DELTA)


def main() -> None:
    """Print one line a setting and the worst of each column."""
    # The first call pays for imports, which are no part of the question.
    smallest_noise(
        draw=PoissonDraw(rate=0.1), changed_trees=1, steps=10, epsilon=1.0, delta=DELTA, accountant="pair"
    )
    columns = ("steps", "rate", "trees", "sigma/C", "noise, s", "epsilon", "epsilon, s", "doubled, %")
    print(("{:>12}" * len(columns)).format(*columns))
    worst = [0.0, 0.0, 0.0]
    for steps in STEPS:
        for rate in RATES:
            for trees in TREES:
                draw = PoissonDraw(rate=rate)

                def noise(draw: PoissonDraw = draw, trees: int = trees, steps: int = steps) -> float:
                    return smallest_noise(
                        draw=draw,
                        changed_trees=trees,
                        steps=steps,
                        epsilon=EPSILON,
                        delta=DELTA,
                        accountant="pair",
                    )

                sigma, noise_seconds = timed(noise)
                event = StepEvent(draw=draw, changed_trees=trees, sigma_over_clip=sigma)

                def price(event: StepEvent = event, steps: int = steps) -> float:
                    return epsilon(event, steps, 1.0)

                usual, epsilon_seconds = timed(price)
                change = 100 * abs(usual / epsilon(event, steps, 2.0) - 1)
                worst = [
                    max(w, v) for w, v in zip(worst, (noise_seconds, epsilon_seconds, change), strict=True)
                ]
                print(
                    f"{steps:>12}{rate:>12}{trees:>12}{sigma:>12.4g}{noise_seconds:>12.3f}"
                    f"{usual:>12.5f}{epsilon_seconds:>12.3f}{change:>12.4f}"
                )
    print(
        f"worst: noise from epsilon {worst[0]:.2f} s, epsilon from noise {worst[1]:.2f} s, "
        f"doubled precision {worst[2]:.3f}%"
    )


if __name__ == "__main__":
    main()
