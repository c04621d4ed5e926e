"""`hushgraph reproduce frontier`: what is run, recorded and tabulated, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest

from hushgraph.cli.app import main
from hushgraph.cli.reproduce import run_experiments
from hushgraph.graph.graph import Graph
from hushgraph.reproduction import spec
from hushgraph.reproduction.arrivals import take_out_test_nodes
from hushgraph.reproduction.jobs import list_jobs, run_digest, train_arguments
from hushgraph.reproduction.runner import Options, Reproduction
from hushgraph.reproduction.tables import Table
from hushgraph.training import train as training

FRONTIER = spec.load("frontier")
ROWS = [name for row in FRONTIER.rows for name in (row.printed, row.clear) if name is not None]
RECORDS = Path(__file__).parents[2] / "benchmarks" / "records" / "frontier" / "records.jsonl"


def silent(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("frontier")
    return out, run_experiments(["frontier"], Options(out=out, quick=True, device="cpu"), quiet=True)


def records_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]


def test_a_quick_run_fills_every_row(quick: tuple[Path, dict[str, Any]]) -> None:
    out, result = quick
    (table,) = result["tables"]
    assert list(dict.fromkeys(line["row"] for line in table["lines"])) == ROWS
    assert {line["data"] for line in table["lines"]} == {"generated"}
    # Five rows at two budgets and five ceilings.
    assert len(table["lines"]) == 5 * 2 + 5
    assert (result["planned"], result["left"], len(records_of(out))) == (12, 12, 12)
    names = {"figures", "frontier.json", "frontier.md", "records.jsonl"}
    assert {path.name for path in out.iterdir()} == names
    assert {path.name for path in (out / "figures").iterdir()} == {"frontier.png", "frontier.svg"}
    table = [line for line in (out / "frontier.md").read_text().splitlines() if line.startswith("|")]
    assert table[0] == "| method | epsilon 0.5 | epsilon 12 | without noise |"
    assert [line.split(" | ")[0][2:] for line in table[2:]] == ROWS


def test_every_line_traces_to_records(quick: tuple[Path, dict[str, Any]]) -> None:
    out, result = quick
    known = {record["run"]: record for record in records_of(out)}
    for line in result["tables"][0]["lines"]:
        (record,) = (known[run] for run in line["runs"])
        is_clear = line["row"].endswith("in the clear")
        accuracy = record["test_accuracy_in_the_clear" if is_clear else "test_accuracy"]
        assert line["ours"] == pytest.approx(100 * accuracy)
        assert record["commit"] is None or len(record["commit"]) == 40
        assert record["versions"]["hushgraph"]


def test_accuracies_are_exact(quick: tuple[Path, dict[str, Any]]) -> None:
    """Fractions of one number of rows, also of runs whose own figures have noise."""
    shown = [record["test_accuracy"] for record in records_of(quick[0])]

    def fits(rows: int) -> bool:
        return all(abs(value * rows - round(value * rows)) < 1e-9 for value in shown)

    assert [rows for rows in range(2, 200) if fits(rows)]


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
    again = run_experiments(["frontier"], Options(out=out, quick=True, device="cpu"), quiet=True)
    assert (again["left"], again["tables"]) == (0, first["tables"])


def test_all_runs_of_the_experiment() -> None:
    jobs = list_jobs(FRONTIER, modes=spec.DP_MODES)
    # Four private methods at six budgets and four ceilings, on seven graphs, three times.
    assert len(jobs) == 7 * 3 * (4 * 6 + 4)
    assert {job.epsilon for job in jobs} == {0.5, 1.0, 2.0, 4.0, 8.0, 12.0, None}


def test_the_committed_records_are_those_of_its_runs() -> None:
    digests = {
        run_digest(train_arguments(job), data=job.column.name, reading=job.reading({}), seed=job.seed)
        for job in list_jobs(FRONTIER, modes=spec.DP_MODES)
    }
    assert {json.loads(line)["run"] for line in RECORDS.read_text().splitlines()} == digests


@pytest.mark.parametrize(
    ("only", "count"),
    [
        (("planetoid_*",), 3 * 3 * 28),
        (("trees",), 7 * 3 * 6),
        (("facebook_32_schools/ceiling-*", "ogbn_arxiv_hints/mlp"), 3 * 4 + 3 * 7),
    ],
)
def test_patterns_choose_graphs_and_methods(only: tuple[str, ...], count: int) -> None:
    assert len(list_jobs(FRONTIER, modes=spec.DP_MODES, only=only)) == count


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


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHGRAPH_DATA", str(tmp_path))


def work_with_records(folder: Path, **changes: Any) -> Reproduction:
    """Three seeds of the billboard at epsilon 4."""
    (folder / "planetoid_cora.npz").touch()
    out = folder / "out"
    out.mkdir()
    options = Options(out=out, only=("planetoid_cora/billboard",))
    planned = [run for run in Reproduction(["frontier"], options, say=silent).plan if run.job.epsilon == 4.0]
    lines = []
    for run, accuracy in zip(planned, (0.5, 0.6, 0.7), strict=True):
        measured = {"test_accuracy": accuracy, "test_accuracy_in_the_clear": accuracy + 0.1}
        lines.append({**run.labels, **measured, "epsilon_holds": 3.9, **changes})
    (out / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Reproduction(["frontier"], options, say=silent)


def table_of(work: Reproduction) -> Table:
    (table,) = work.tables()
    assert isinstance(table, Table)
    return table


def test_mean_and_spread_over_seeds(tmp_path: Path) -> None:
    table = table_of(work_with_records(tmp_path))
    covered, clear = table.lines
    assert [covered.row, clear.row] == ROWS[:2]
    assert math.isclose(covered.ours, mean([50, 60, 70]))
    assert covered.spread == pytest.approx(stdev([50, 60, 70]))
    assert clear.ours == pytest.approx(70)
    assert (covered.axes["epsilon"], covered.holds) == (4.0, 3.9)
    assert "| DP-Billboard, covered | 60.0 ± 10.0 |  |" in table.markdown()
    assert any("standard deviation over 3 seeds" in note for note in table.notes)


def test_graphs_that_are_missing_are_named(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "planetoid_cora.npz").touch()
    options = Options(out=tmp_path / "out", only=("planetoid_*",))
    work = Reproduction(["frontier"], options, say=told.append)
    assert {run.job.column.name for run in work.plan} == {"planetoid_cora"}
    assert [line.partition(":")[0] for line in told] == ["planetoid_pubmed", "planetoid_citeseer"]


def test_the_seed_draws_the_split_and_nothing_else(tmp_path: Path) -> None:
    parts = {"edge_index": [[0, 1], [1, 2]], "x": np.eye(40), "y": np.arange(40) % 7}
    np.savez(tmp_path / "planetoid_cora.npz", **parts)  # type: ignore[arg-type]
    options = Options(out=tmp_path / "out", only=("planetoid_cora",))
    work = Reproduction(["frontier"], options, say=silent)
    column = FRONTIER.column("planetoid_cora")
    first, second = (work.sources.graph(column, seed) for seed in (0, 1))
    assert first.train_idx.tolist() != second.train_idx.tolist()
    assert np.array_equal(first.x, second.x)
    assert (first.num_classes, second.num_classes) == (7, 7)


def test_a_line_without_a_bound_in_one_seed_has_none(tmp_path: Path) -> None:
    table = table_of(work_with_records(tmp_path, epsilon_holds=None))
    assert [line.holds for line in table.lines] == [None, None]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--quick", "--only", "nobody"], "no cell has this name; datasets are facebook_32_schools"),
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
