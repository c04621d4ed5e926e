"""`hushgraph reproduce frontier`: what is run, recorded and tabulated, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest

from hushgraph.cli.app import main
from hushgraph.cli.reproduce import run_frontier
from hushgraph.errors import InputError
from hushgraph.graph.graph import Graph
from hushgraph.reproduction import frontier
from hushgraph.reproduction.frontier import GRAPHS, METHODS, Frontier, Line, list_jobs, take_out_test_nodes
from hushgraph.reproduction.runner import Options
from hushgraph.training import train as training


def silent(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("frontier")
    return out, run_frontier(Options(out=out, quick=True, device="cpu"), quiet=True)


def records_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "frontier.jsonl").read_text().splitlines()]


def test_a_quick_run_fills_every_row(quick: tuple[Path, dict[str, Any]]) -> None:
    out, result = quick
    assert list(dict.fromkeys(line["row"] for line in result["lines"])) == frontier.list_rows()
    # Five rows at two budgets and five ceilings.
    assert len(result["lines"]) == 5 * 2 + 5
    assert (result["planned"], result["left"], len(records_of(out))) == (12, 12, 12)
    names = {"frontier.json", "frontier.jsonl", "frontier.jsonl.lock", "frontier.md"}
    names |= {"frontier.png", "frontier.svg"}
    assert {path.name for path in out.iterdir()} == names
    table = [line for line in (out / "frontier.md").read_text().splitlines() if line.startswith("|")]
    assert table[0] == "| method | epsilon 1 | epsilon 8 | without noise |"
    assert [line.split(" | ")[0][2:] for line in table[2:]] == frontier.list_rows()


def test_every_line_traces_to_records(quick: tuple[Path, dict[str, Any]]) -> None:
    out, result = quick
    known = {record["run"]: record for record in records_of(out)}
    for line in result["lines"]:
        (record,) = (known[run] for run in line["runs"])
        is_clear = line["row"].endswith("in the clear")
        accuracy = record["test_accuracy_in_the_clear" if is_clear else "test_accuracy"]
        assert line["ours"] == pytest.approx(100 * accuracy)
        assert record["commit"] is None or len(record["commit"]) == 40
        assert record["versions"]["hushgraph"]


def test_epsilon_of_every_private_run_holds(quick: tuple[Path, dict[str, Any]]) -> None:
    for record in records_of(quick[0]):
        assert record["config"]["seed"] is None
        if record["mode"] == "sound":
            assert record["guarantee"] == "holds"
            assert 0 < record["epsilon_holds"] <= record["axes"]["epsilon"] == record["claimed_epsilon"]
        else:
            assert (record["guarantee"], record["epsilon_holds"], record["axes"]) == ("none", None, {})
        is_covered = record["row"] in ("billboard", "new-nodes", "mlp")
        assert record["predictions"].startswith("covered") == is_covered


def test_the_same_call_trains_nothing_again(
    quick: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, first = quick
    monkeypatch.setattr(training, "train", None)
    again = run_frontier(Options(out=out, quick=True, device="cpu"), quiet=True)
    assert (again["left"], again["lines"]) == (0, first["lines"])


def test_all_runs_of_the_experiment() -> None:
    jobs = list_jobs(Options(out=Path()))
    # Four private methods at six budgets and three ceilings, on seven graphs, three times.
    assert len(jobs) == len({job.digest for job in jobs}) == 7 * 3 * (4 * 6 + 4)
    assert {job.epsilon for job in jobs} == {0.5, 1.0, 2.0, 4.0, 8.0, 12.0, None}
    # A graph is read once.
    order = [job.graph.name for job in jobs]
    assert sum(a != b for a, b in itertools.pairwise(order)) == len(GRAPHS) - 1


@pytest.mark.parametrize(
    ("only", "count"),
    [
        (("planetoid_*",), 3 * 3 * 28),
        (("trees",), 7 * 3 * 6),
        (("facebook_32_schools/ceiling-*", "ogbn_arxiv_hints/mlp"), 3 * 4 + 3 * 6),
    ],
)
def test_patterns_choose_graphs_and_methods(only: tuple[str, ...], count: int) -> None:
    assert len(list_jobs(Options(out=Path(), only=only))) == count


def test_test_nodes_are_taken_out_and_come_back_with_their_lists() -> None:
    """A path 0 - 1 - 2 - 3 - 4 and the edge 1 - 3; nodes 1 and 3 are the test nodes."""
    graph = Graph.from_arrays(
        edge_index=np.array([[0, 1, 2, 3, 1], [1, 2, 3, 4, 3]]),
        x=np.arange(10, dtype=np.float32).reshape(5, 2),
        y=np.array([0, 1, 0, -1, 1]),
        train_idx=[0, 4],
        val_idx=[2],
        test_idx=[1, 3],
        symmetrize=True,
    )
    smaller, arrivals = take_out_test_nodes(graph)
    assert (smaller.num_nodes, smaller.num_edges, smaller.num_classes) == (3, 0, 2)
    assert smaller.x[:, 0].tolist() == [0, 4, 8]
    assert smaller.y.tolist() == [0, 0, 1]
    assert (smaller.train_idx.tolist(), smaller.val_idx.tolist()) == ([0, 2], [1])
    assert len(smaller.test_idx) == 0
    lists = np.split(arrivals.places, arrivals.indptr[1:-1])
    # Node 1 lists 0, 2 and 3, which are places 0 and 1 and none; node 3 lists 1, 2 and 4.
    assert [one.tolist() for one in lists] == [[0, 1, -1], [-1, 1, 2]]
    assert arrivals.features[:, 0].tolist() == [2, 6]
    assert arrivals.labels.tolist() == [1, -1]


def write_records(out: Path, **changes: Any) -> None:
    """Three seeds of the billboard at epsilon 4."""
    out.mkdir(exist_ok=True)
    jobs = [
        job for job in list_jobs(Options(out=out, only=("planetoid_cora/billboard",))) if job.epsilon == 4.0
    ]
    lines = []
    for job, accuracy in zip(jobs, (0.5, 0.6, 0.7), strict=True):
        measured = {"test_accuracy": accuracy, "test_accuracy_in_the_clear": accuracy + 0.1}
        lines.append({**job.labels, **measured, "epsilon_holds": 3.9, "run": job.digest, **changes})
    (out / "frontier.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def data_folder(root: Path) -> Path:
    (root / "planetoid_cora.npz").touch()
    return root


def test_mean_and_spread_over_seeds(tmp_path: Path) -> None:
    write_records(tmp_path / "out")
    options = Options(out=tmp_path / "out", data_root=data_folder(tmp_path), only=("planetoid_cora",))
    covered, clear = Frontier(options, say=silent).lines()
    assert (covered.row, clear.row) == (METHODS[0].row, METHODS[0].clear_row)
    assert math.isclose(covered.ours, mean([50, 60, 70]))
    assert covered.spread == pytest.approx(stdev([50, 60, 70]))
    assert clear.ours == pytest.approx(70)
    assert (covered.epsilon, covered.epsilon_holds) == (4.0, 3.9)
    text = frontier.write_table([covered, clear], tmp_path)
    assert "| DP-Billboard, covered | 60.0 ± 10.0 |  |" in text
    assert "standard deviation over 3 seeds" in text


def test_graphs_that_are_missing_are_named(tmp_path: Path) -> None:
    told: list[str] = []
    options = Options(out=tmp_path / "out", data_root=data_folder(tmp_path), only=("planetoid_*",))
    work = Frontier(options, say=told.append)
    assert {job.graph.name for job in work.plan} == {"planetoid_cora"}
    assert [line.partition(":")[0] for line in told] == ["planetoid_pubmed", "planetoid_citeseer"]
    with pytest.raises(InputError, match=r"nothing is left to run: facebook_32_schools: .*--data-root"):
        Frontier(Options(out=tmp_path, data_root=tmp_path, only=("facebook*",)), say=silent)


def test_quick_does_not_replace_the_table_of_real_graphs(tmp_path: Path) -> None:
    write_records(tmp_path)
    with pytest.raises(InputError, match="records of real data"):
        Frontier(Options(out=tmp_path, quick=True), say=silent)


def test_a_line_without_a_bound_in_one_seed_has_none(tmp_path: Path) -> None:
    write_records(tmp_path / "out", epsilon_holds=None)
    options = Options(out=tmp_path / "out", data_root=data_folder(tmp_path), only=("planetoid_cora",))
    lines: list[Line] = Frontier(options, say=silent).lines()
    assert [line.epsilon_holds for line in lines] == [None, None]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--quick", "--only", "nobody"], "no run has this name; graphs are facebook_32_schools"),
        (["--quick", "--mode", "sound"], "frontier has one mode"),
        (["--quick", "--substitute", "a=b"], "leave out --mode and --substitute"),
        (["--data-root", "."], "nothing is left to run"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "frontier", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_it_is_listed_and_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "frontier", "--list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (listed["name"], listed["runs"], listed["source"]) == ("frontier", 588, "not in the paper")
    words = ["--quick", "--dry-run", "--json", "--out", str(tmp_path / "out")]
    assert main(["reproduce", "frontier", *words]) == 0
    assert json.loads(capsys.readouterr().out)["planned"] == 12
    assert not (tmp_path / "out").exists()
