"""What becomes of centre and spread of a column if noisy counts are cut at 0, or where noise alone reaches.

    python benchmarks/scaling_cut.py --out benchmarks/records/scaling_cut.txt

Ten columns share 5% of the budget. A column is lognormal, so that asinh of it is nearly normal with a spread
of 0.25. Means of 20 draws of rows and noise.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from hushgraph.accounting.accountants import gaussian_shift
from hushgraph.privacy.plans.plan import SCALING_SHARE
from hushgraph.scaling.histograms import NUM_BINS, find_scale, locate

COLUMNS, SPREAD, DRAWS = 10, 0.25, 20


def measure(rows: int, epsilon: float, rng: np.random.Generator) -> list[float]:
    """The noise, and the mean spread of both rules."""
    shift = gaussian_shift(epsilon, 1 / (10 * rows)) * math.sqrt(SCALING_SHARE)
    std = math.sqrt(COLUMNS) / shift
    spreads = []
    for _ in range(DRAWS):
        counts = np.bincount(locate(rng.lognormal(10, SPREAD, rows)), minlength=NUM_BINS)
        noisy = counts + np.rint(std * rng.normal(size=NUM_BINS)).astype(np.int64)
        # Without a known noise, only counts below 0 are cut.
        spreads.append([find_scale(noisy)[1], find_scale(noisy, noise_std=std)[1]])
    return [std, *np.mean(spreads, axis=0)]


def write_table() -> str:
    """One line for every number of rows and epsilon."""
    lines = ["| training rows | epsilon | noise of a count | spread, cut at 0 | spread, cut at 3.5 s |"]
    lines.append("|---|---|---|---|---|")
    for rows in (500, 1_800, 10_000, 100_000):
        for epsilon in (1.0, 4.0):
            std, plain, cut = measure(rows, epsilon, np.random.default_rng(rows))
            lines.append(f"| {rows:,} | {epsilon:g} | {std:.1f} | {plain:.2f} | {cut:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.parse_args().out.write_text(write_table() + "\n")


if __name__ == "__main__":
    main()
