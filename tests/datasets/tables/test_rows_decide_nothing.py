"""Training, plans and predictions read a row by that row and by declared rules: no other row moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.datasets import load_graph

COUNT, ROW = 30, 4
RULES: dict[str, Any] = {
    "decimal": ",",
    "thousands": ".",
    "percent": ["share"],
    "booleans": ["active"],
    "dates": {"opened": "2000-01-01"},
    "cycles": {"opened": ["weekday"]},
    "missing": ["?"],
    "fill": 0,
    "unknown_ids": "drop",
    "classes": ["no", "yes"],
}
USUAL = "1.234,5;12%;yes;2020-01-31;yes"
# Cells that would tempt a reader to guess anew how all of them are written.
ODD = ["1234;12;1;2020-01-31T12:00;", ";;;;", "?;0,5%;NO;1999/1/2;no", '"1,5";" 7 %";T;2020-12-31;"yes"']


def write(folder: Path, row: str, ends: str = "p4;p5") -> tuple[list[Path], list[Path]]:
    """Two files of people, in which one has this row, and two of edges."""
    folder.mkdir()
    head = "id;sum;share;active;opened;label"
    rows = [f"p{n};{row if n == ROW else USUAL}" for n in range(COUNT)]
    paths = [folder / name for name in ("a.csv", "b.csv", "x.csv", "y.csv")]
    links = [f"p{n};p{(n + 1) % COUNT}" for n in range(COUNT) if n != ROW]
    texts = ([head, *rows[:10]], [head, *rows[10:]], ["source;target", *links[:9]])
    for path, lines in zip(paths, (*texts, ["target;source", *links[9:], ends]), strict=True):
        path.write_text("\n".join(lines) + "\n")
    return paths[:2], paths[2:]


@pytest.mark.parametrize("row", ODD)
@pytest.mark.parametrize("ends", ["p4;p5", "p4,p6;p5", "p4|p6;?"])
def test_one_row_moves_no_other(row: str, ends: str, tmp_path: Path) -> None:
    usual = load_graph(write(tmp_path / "usual", USUAL), columns=RULES, split="0.5/0.2/0.3")
    odd = load_graph(write(tmp_path / "odd", row, ends), columns=RULES, split="0.5/0.2/0.3")
    others = np.arange(COUNT) != ROW
    np.testing.assert_array_equal(usual.x[others], odd.x[others])
    np.testing.assert_array_equal(usual.y[others], odd.y[others])
    np.testing.assert_array_equal(usual.train_idx, odd.train_idx)
    assert usual.columns == odd.columns
    kept = []
    for graph in (usual, odd):
        pairs = zip(*next(graph.edge_chunks()), strict=True)
        kept.append({(int(u), int(w)) for u, w in pairs if ROW not in (u, w)})
    assert kept[0] == kept[1]
    plans = [hg.prepare(graph, epsilon=4.0, steps=2).plan.to_json() for graph in (usual, odd)]
    assert plans[0] == plans[1]


def test_a_run_keeps_the_rules_for_new_nodes(tmp_path: Path) -> None:
    run = hg.train(
        write(tmp_path / "old", ODD[2]), columns=RULES, epsilon=4.0, steps=2, hidden=4, device="cpu"
    )
    kept = hg.Run.load(run.folder.path / "release").folder.columns
    assert kept is not None
    assert (kept.decimal, kept.booleans, dict(kept.dates)) == ({"*": ","}, ("active",), RULES["dates"])
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "nodes.csv").write_text('opened,share,sum,id,active\n2020-01-31,12%,"1.234,5",q1,yes\n')
    (folder / "edges.csv").write_text("source,target\nq1,p5\n")
    from hushgraph.datasets.tables.new_rows import new_rows_from_tables

    usual = load_graph(write(tmp_path / "more", USUAL), columns=RULES, split="1/0/0")
    with new_rows_from_tables(folder, columns=kept, listed_by="source") as rows:
        np.testing.assert_array_equal(rows.x[0], usual.x[0])
    assert len(run.predict_table(folder, new=True).names) == 1
