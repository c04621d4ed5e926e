"""Raw tables of a made-up bank through `check` and the command that it prints: ROC-AUC, covered and exact.

    python benchmarks/fraud_table.py                      all records, into records/fraud_table.jsonl

The tables are those of docs/tutorials/fraud.md, from docs/examples/tables.py: 30,000 accounts, 1.5% of them
fraudulent, with columns of very different scales and decimal commas, transfers with amounts between them, and
devices that they were used from. How rings share phones and pass on money was written down before anything
was trained on these tables, and not changed since. The weight 0.1 that `check` proposes was chosen among five
settings, all within 0.01, with test figures of an earlier version of these tables in view.

A record is one run of the printed command: as it is; without what it declares of devices, or of amounts, or
of both; with --model mlp, which reads no edges; each with --non-private too.
`covered_auc` is what the run publishes, from noisy counts of the test split; `exact_auc` compares scores with
the labels and is not covered.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import runpy
import shlex
import tempfile
from pathlib import Path
from typing import Any

from scipy import stats

import hushgraph as hg
from hushgraph.cli.app import main as run_command

RECORD = Path(__file__).parent / "records" / "fraud_table.jsonl"
EXAMPLES = Path(__file__).parent.parent / "docs" / "examples" / "tables.py"
CHECK = "check bank/accounts.csv --edges bank/transfers_*.csv --edges bank/logins_*.csv --label fraud"
# What a run reads, by the flags of the printed command that it goes without, and those that it adds.
READS = {
    "transfers, devices and amounts": ((), ()),
    "transfers and devices": (("--edge-weight",), ()),
    "transfers and amounts": (("--places",), ()),
    "transfers": (("--places", "--edge-weight"), ()),
    "no record: the private MLP": (("--places", "--edge-weight"), ("--model", "mlp")),
}


def write_bank(folder: Path, **settings: Any) -> None:
    """Write the tables by the generator of the tutorials."""
    runpy.run_path(str(EXAMPLES))["write_bank"](folder, **settings)


def find_next() -> list[str]:
    """Run `check` and return the words of the command after "Next:"."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = run_command(CHECK.split())
    if code != 0:
        raise RuntimeError(said.getvalue())
    line = next(line for line in said.getvalue().splitlines() if line.startswith("Next: hushgraph "))
    return shlex.split(line.removeprefix("Next: hushgraph "))


def leave_out(words: list[str], flags: tuple[str, ...]) -> list[str]:
    """A command without these flags and their values."""
    places = [words.index(flag) for flag in flags]
    return [word for n, word in enumerate(words) if n not in places and n - 1 not in places]


def measure(words: list[str], out: str) -> dict[str, Any]:
    """Train by a command; return the ROC-AUC of the test split."""
    with contextlib.redirect_stdout(io.StringIO()):
        code = run_command([*words, "--out", out, "--quiet", "--device", "cpu"])
    if code != 0:
        raise RuntimeError(shlex.join(words))
    run = hg.Run.load(out)
    graph = run.folder.read_raw_graph(words[1])
    score = run.predict_proba(words[1])[:, 1][graph.test_idx]
    is_fraud = graph.y[graph.test_idx] == 1
    ranks, positive = stats.rankdata(score), int(is_fraud.sum())
    area = (ranks[is_fraud].sum() - positive * (positive + 1) / 2) / (positive * int((~is_fraud).sum()))
    return {
        "epsilon": None if "--non-private" in words else run.epsilon,
        "delta": run.delta,
        "noise_of_scaling": run.plan.scaling_noise,
        "covered_auc": None if "--non-private" in words else run.result.get("test_auc"),
        "exact_auc": round(float(area), 4),
        "command": shlex.join(["hushgraph", *words]),
    }


def main() -> None:
    """Write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--accounts", type=int, default=30_000)
    flags = parser.parse_args()
    out = flags.out.absolute()
    with tempfile.TemporaryDirectory() as home, contextlib.chdir(home), out.open("w") as file:
        write_bank(Path("bank"), accounts=flags.accounts)
        printed = find_next()
        place = printed.index("--epsilon")
        without_noise = [*printed[:place], "--non-private", *printed[place + 2 :]]
        for words in (printed, without_noise):
            for reads, (left_out, more) in READS.items():
                for run in range(flags.runs):
                    figures = measure([*leave_out(words, left_out), *more], f"run-{len(os.listdir())}")
                    line = json.dumps({"reads": reads, "run": run} | figures)
                    file.write(line + "\n")
                    file.flush()
                    print(line, flush=True)


if __name__ == "__main__":
    main()
