"""Whole private training runs against ten epochs of a plain GCN, each a process of its own.

    python benchmarks/bench_train.py DATA.npz... [--repeats 3] [--record FILE]
    python benchmarks/bench_train.py DATA.npz... --against CHECKOUT   runs here against those of an older one
    python benchmarks/bench_train.py DATA.npz... --busy               with a spinning process beside it

`hushgraph train DATA --epsilon 4 --symmetrize`, with start-up, boards, evaluation and writing of the run, is
compared with a two-layer GCN of PyTorch Geometric: hidden 128, sparse CSR adjacency, ten epochs, with its
imports and loading. Runs alternate, so that a busy moment does not fall on one of them alone; the table has
medians. Peaks are resident sets, beside that of a process that only imports and the arrays of the data.
`--flags` says how runs are trained instead, such as "--method trees --epsilon 12".
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

SOURCE = Path(__file__).parent.parent / "src"
EPOCHS, HIDDEN = 10, 128
SPLIT = "0.6/0.2/0.2"
MIB = 2.0**20


class Cost(NamedTuple):
    """Wall-clock seconds and the largest resident set, MiB, of one process."""

    seconds: float
    peak: float


def run(arguments: list[str], source: Path = SOURCE) -> Cost:
    """Run Python with these arguments to its end."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {errors.decode()[-500:]}")
    return Cost(seconds, usage.ru_maxrss * 1024 / MIB)


def train(path: Path, *more: str, source: Path = SOURCE) -> Cost:
    """One whole `hushgraph train` with these flags."""
    folder = Path(tempfile.mkdtemp(prefix="bench-train-"))
    split = [] if "train_idx" in np.load(path).files else ["--split", SPLIT]
    try:
        arguments = ["-m", "hushgraph", "train", str(path), *split, *more, "--out", str(folder / "run")]
        return run(arguments, source)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_gcn(path: Path) -> None:
    """Ten epochs of a plain GCN, as somebody would write it who has the arrays."""
    import torch
    from scipy import sparse
    from torch.nn import functional
    from torch_geometric.nn import GCNConv
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.utils import to_torch_csr_tensor, to_undirected

    arrays = np.load(path)
    y = torch.from_numpy(arrays["y"].astype(np.int64))
    if "x" in arrays.files:
        x = torch.from_numpy(arrays["x"]).float()
    else:
        values = np.broadcast_to(arrays["x_data"].astype(np.float32), len(arrays["x_indices"])).copy()
        parts = (values, arrays["x_indices"].astype(np.int32), arrays["x_indptr"])
        x = torch.from_numpy(sparse.csr_array(parts, shape=tuple(arrays["x_shape"])).toarray())
    edges = to_undirected(torch.from_numpy(arrays["edge_index"].astype(np.int64)))
    adjacency = to_torch_csr_tensor(*gcn_norm(edges, num_nodes=len(y)), size=(len(y), len(y)))
    if "train_idx" in arrays.files:
        chosen = torch.from_numpy(arrays["train_idx"].astype(np.int64))
    else:
        chosen = torch.randperm(len(y))[: int(0.6 * len(y))]
    chosen = chosen[y[chosen] >= 0]
    first = GCNConv(x.shape[1], HIDDEN, normalize=False)
    second = GCNConv(HIDDEN, int(y.max()) + 1, normalize=False)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        scores = second(first(x, adjacency).relu(), adjacency)
        functional.cross_entropy(scores[chosen], y[chosen]).backward()
        optimizer.step()


def count_bytes(path: Path) -> float:
    """MiB of the graph in memory: reads in both directions, features, labels."""
    code = (
        "import sys; from hushgraph.datasets.loading import load_graph; from scipy import sparse;"
        f"g = load_graph(sys.argv[1], symmetrize=True, split={SPLIT!r} if sys.argv[2] == '1' else None);"
        "x = [g.x.data, g.x.indices, g.x.indptr] if sparse.issparse(g.x) else [g.x];"
        "print(sum(a.nbytes for a in [g.indptr, g.indices, g.y, *x]))"
    )
    needs_split = "0" if "train_idx" in np.load(path).files else "1"
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), needs_split],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout) / MIB


def spin() -> None:
    """Keep a processor busy."""
    while True:
        pass


@contextlib.contextmanager
def busy(is_busy: bool) -> Iterator[None]:
    """A process that spins beside what is measured."""
    spinning = multiprocessing.Process(target=spin, daemon=True)
    if is_busy:
        spinning.start()
    try:
        yield
    finally:
        if is_busy:
            spinning.terminate()
            spinning.join()


def compare_with_gcn(path: Path, repeats: int, flags: list[str]) -> str:
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(train(path, *flags))
        theirs.append(run([__file__, "--gcn", str(path)]))
    seconds = [statistics.median(cost.seconds for cost in costs) for costs in (ours, theirs)]
    peaks = [max(cost.peak for cost in costs) for costs in (ours, theirs)]
    return (
        f"{path.stem:22} {seconds[0]:7.1f} {seconds[1]:7.1f} {seconds[0] / seconds[1]:6.2f} "
        f"{peaks[0]:8.0f} {peaks[1]:8.0f} {count_bytes(path):8.0f}"
    )


def compare_versions(path: Path, repeats: int, flags: list[str], checkout: Path) -> str:
    sources = (SOURCE, checkout / "src")
    # Whatever is compiled on first use is compiled before anything is measured.
    for source in sources:
        train(path, *flags, "--steps", "2", source=source)
    turns = [[train(path, *flags, source=source).seconds for source in sources] for _ in range(repeats)]
    now, before = (statistics.median(seconds) for seconds in zip(*turns, strict=True))
    ratio = statistics.median(one / other for one, other in turns)
    return f"{path.stem:22} {now:7.1f} {before:7.1f} {ratio:6.2f}"


def compare_busy(path: Path, repeats: int, flags: list[str]) -> str:
    quiet, loaded = [], []
    for _ in range(repeats):
        for costs in (quiet, loaded):
            with busy(costs is loaded):
                costs.append(train(path, *flags))
    seconds = [statistics.median(cost.seconds for cost in costs) for costs in (quiet, loaded)]
    return f"{path.stem:22} {seconds[0]:7.1f} {seconds[1]:7.1f} {seconds[1] / seconds[0]:6.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="*", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    parser.add_argument("--flags", default="--epsilon 4 --symmetrize")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--gcn", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gcn is not None:
        run_gcn(options.gcn)
        return
    imports = run(["-c", "import hushgraph.training.train"]).peak
    lines = [
        f"{os.cpu_count()} processors, median of {options.repeats}; imports alone peak at {imports:.0f} MiB"
    ]
    flags = options.flags.split()
    if options.against is not None:
        lines.append(f"{'seconds':22} {'now':>7} {'before':>7} {'ratio':>6}   {options.flags}")
    elif options.busy:
        lines.append(f"{'seconds':22} {'quiet':>7} {'busy':>7} {'ratio':>6}")
    else:
        lines.append(
            f"{'seconds':22} {'train':>7} {'GCN':>7} {'ratio':>6} {'peak MiB':>8} {'its MiB':>8} {'data':>8}"
        )
    print("\n".join(lines), flush=True)
    for path in options.data:
        if options.against is not None:
            lines.append(compare_versions(path, options.repeats, flags, options.against))
        elif options.busy:
            lines.append(compare_busy(path, options.repeats, flags))
        else:
            lines.append(compare_with_gcn(path, options.repeats, flags))
        print(lines[-1], flush=True)
    if options.record is not None:
        options.record.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
