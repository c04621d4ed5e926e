"""One step on rows by how much of the features is not zero: sparse and dense features, one thread.

    python benchmarks/bench_rows.py [--record FILE]

16,384 rows, 512 features, 8 classes, hidden 64. Seconds are those of the thread, so that other processes on
the machine matter less, and sparse and dense steps alternate.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from scipy import sparse

from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows import RowPass, find_chain
from hushgraph.inputs.rows import Rows, SparseRows
from hushgraph.models.gnn import ReadingMLP

ROWS, FEATURES, CLASSES, HIDDEN, REPEATS = 16_384, 512, 8, 64, 7
FILLS = (0.005, 0.02, 0.08, 0.2, 0.35, 0.5, 1.0)


def measure(step: RowPass, rows: Rows) -> float:
    begin = time.thread_time()
    step.clipped_sum(rows, Clipping())
    return time.thread_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    readings = rng.standard_normal((ROWS, CLASSES)).astype(np.float32)
    labels = rng.integers(CLASSES, size=ROWS)
    chain = find_chain(ReadingMLP(FEATURES, CLASSES, hidden=HIDDEN))
    if chain is None:
        raise TypeError("ReadingMLP: expected a chain")
    step = RowPass(chain, threads=1)
    lines = ["  fill  sparse ms  dense ms"]
    for fill in FILLS:
        x = (rng.random((ROWS, FEATURES)) < fill).astype(np.float32)
        given = (
            Rows(features=SparseRows.of(sparse.csr_array(x)), dense=readings, labels=labels),
            Rows(dense=np.concatenate([x, readings], axis=1), labels=labels),
        )
        taken = np.array([[measure(step, rows) for rows in given] for _ in range(REPEATS + 1)])
        best = 1e3 * taken[1:].min(axis=0)
        lines.append(f"{fill:6.1%} {best[0]:10.1f} {best[1]:9.1f}")
        print(lines[-1], flush=True)
    if options.record is not None:
        options.record.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
