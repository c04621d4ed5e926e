"""Billboard runs from data to predictions: boards, resuming, new nodes, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import hushgraph as hg
from hushgraph import Graph
from hushgraph.billboard.board import load_board
from hushgraph.errors import InputError, PlanError, RunError
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import BillboardPlan

SHORT = {"steps": 6, "hidden": 4, "device": "cpu"}


@pytest.fixture(scope="module")
def data() -> Graph:
    return hg.datasets.synthetic(num_nodes=200, num_classes=3, num_features=6, seed=1)


@pytest.fixture(scope="module")
def run(data: Graph, tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    out = tmp_path_factory.mktemp("billboard") / "run"
    return hg.train(data, epsilon=4.0, out=out, evaluate_every=2, **SHORT)


def test_the_billboard_is_the_default(run: hg.Run) -> None:
    assert isinstance(run.plan, BillboardPlan)
    assert run.result["method"] == "billboard"
    assert run.result["predictions"] == "covered towards everybody else"
    assert run.result["guarantee"] == "holds"
    assert run.epsilon <= 4.0


@pytest.mark.parametrize(
    "arguments",
    [{"model": "gcn"}, {"model": "mlp"}, {"max_readers": 1}, {"num_layers": 2}, {"setting": "inductive"}],
)
def test_an_argument_of_trees_means_trees(data: Graph, arguments: dict[str, object]) -> None:
    _, plan, _ = hg.prepare(data, epsilon=4.0, **arguments)
    # An MLP reads no edge: its trees are rows.
    assert plan.method == ("rows" if arguments.get("model") == "mlp" else "trees")


def test_trees_and_boards_are_not_mixed(data: Graph) -> None:
    with pytest.raises(InputError, match="max_readers=2 with method='billboard'"):
        hg.prepare(data, epsilon=4.0, method="billboard", max_readers=2)
    with pytest.raises(InputError, match="method='forest': expected one of billboard, trees"):
        hg.prepare(data, epsilon=4.0, method="forest")


def test_boards_and_steps_are_charged_once(run: hg.Run) -> None:
    ledger = Ledger.open(run.folder.ledger_path, plan=run.plan, read_only=True)
    assert (ledger.releases_charged, ledger.steps_charged) == (3, 6)
    assert ledger.spent_epsilon() == pytest.approx(run.epsilon, rel=1e-9)


def test_result_ledger_report_and_plan_agree(run: hg.Run, data: Graph, tmp_path: Path) -> None:
    run.report(tmp_path / "report.html", data=data)
    report = json.loads((tmp_path / "report.json").read_text())
    for key in ("epsilon", "epsilon_group_of_two", "epsilon_edge", "epsilon_label", "board_share"):
        assert run.result[key] == pytest.approx(run.plan.summary()[key])
        assert report["guarantee"][key] == run.result[key]
    page = (tmp_path / "report.html").read_text()
    assert "covered towards everybody else" in page
    assert "It does not hide that others list the person" in page


@pytest.mark.parametrize("stop_at", [1, 3, 4])
def test_a_killed_run_goes_on_with_the_boards_it_has(data: Graph, tmp_path: Path, stop_at: int) -> None:
    def stop(done: int, total: int, epsilon: float, accuracy: float | None) -> None:
        if done >= stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hg.train(data, epsilon=4.0, out=tmp_path / "run", observer=stop, **SHORT)
    boards = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("board-*")}
    assert boards
    resumed = hg.resume(tmp_path / "run", data, device="cpu")
    for name, content in boards.items():
        assert (tmp_path / "run" / name).read_bytes() == content
    ledger = Ledger.open(resumed.folder.ledger_path, read_only=True)
    assert (ledger.releases_charged, ledger.steps_charged) == (3, 6)
    assert resumed.result["guarantee"] == "holds"


def test_emptying_a_row_changes_no_other_prediction_given_board_and_weights(run: hg.Run, data: Graph) -> None:
    before = run.predict_proba(data)
    # A node outside the training split, so that the split, which is public, stays as it is.
    node = int(data.test_idx[0])
    after = run.predict_proba(data.with_row_emptied(node, "sender"))
    others = np.arange(data.num_nodes) != node
    # Those that the emptied row offered itself to keep their own lists: nothing of theirs changed.
    assert np.array_equal(before[others], after[others])
    assert not np.array_equal(before[node], after[node])


def test_a_new_row_reads_what_an_old_one_reads(run: hg.Run, data: Graph) -> None:
    node = int(data.test_idx[0])
    readers = np.repeat(np.arange(data.num_nodes), np.diff(data.indptr))
    places = readers[data.indices == node]
    ledger = run.folder.ledger_path.read_bytes()
    new, unknown = run.predict_new(data.x[node], [[*places.tolist(), 10_000]])
    assert unknown.tolist() == [1]
    assert run.folder.ledger_path.read_bytes() == ledger
    # Test nodes cast onto the second board, and what they cast there is taken off; a new node cast nothing.
    assert np.abs(new[0] - run.predict_proba(data)[node]).max() < 0.2


@pytest.mark.parametrize("damage", ["missing", "damaged", "foreign"])
def test_a_board_that_is_not_the_runs_own_is_refused(
    run: hg.Run, data: Graph, tmp_path: Path, damage: str
) -> None:
    folder = Path(shutil.copytree(run.folder.path, tmp_path / "copy"))
    board = folder / "board-1.safetensors"
    if damage == "missing":
        board.unlink()
    elif damage == "damaged":
        content = bytearray(board.read_bytes())
        content[-1] ^= 1
        board.write_bytes(bytes(content))
    else:
        other = hg.train(data, epsilon=3.0, out=tmp_path / "other", **SHORT)
        shutil.copy(other.folder.path / "board-1.safetensors", board)
    with pytest.raises(RunError, match="board-1"):
        hg.Run.load(folder, device="cpu").predict(data)


def test_the_board_is_named_after_the_nodes(run: hg.Run) -> None:
    board = load_board(run.folder.path / "board-1.safetensors", plan=run.plan.fingerprint())
    assert board.width == 3
    assert board.places_of([0, 199, 200]).tolist() == [0, 199, -1]


def test_without_privacy_nothing_is_covered(data: Graph) -> None:
    run = hg.train(data, private=False, **SHORT)
    assert run.result["method"] == "billboard"
    assert run.result["guarantee"] == "none"
    assert run.result["predictions"] == "not covered"
    assert run.epsilon == float("inf")


def test_a_seeded_run_promises_nothing(data: Graph) -> None:
    one, two = (hg.train(data, epsilon=4.0, seed=3, **SHORT) for _ in range(2))
    assert one.result["guarantee"] == "none"
    assert one.epsilon == float("inf")
    assert one.result["epsilon_spent"] <= 4.0
    assert np.array_equal(one.predict_proba(data), two.predict_proba(data))


def test_a_module_of_ones_own_takes_features_and_reading(data: Graph) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6 + 3, 3)

        def forward(self, x: Tensor, blocks: object) -> Tensor:
            scores: Tensor = self.layer(x)
            return scores

    run = hg.train(data, epsilon=4.0, method="billboard", model=Own(), **SHORT)
    assert run.predict(data).shape == (200,)
    assert isinstance(run.plan, BillboardPlan)
    assert run.plan.num_boards == 1
    assert run.result["epsilon_other"] == 0.0 < run.result["epsilon_evaluated"] <= run.epsilon


def test_another_graph_has_no_board(run: hg.Run) -> None:
    other = hg.datasets.synthetic(num_nodes=150, num_classes=3, num_features=6, seed=2)
    with pytest.raises(RunError, match="on another graph there is no board"):
        run.predict(other)


def test_rows_and_lists_must_fit(run: hg.Run, data: Graph) -> None:
    with pytest.raises(InputError, match="the rows have 2 features, the model was trained on 6"):
        run.predict_new(np.zeros((1, 2)), [[0]])
    with pytest.raises(InputError, match="places has 2 lists; expected one for each of 1 rows"):
        run.predict_new(data.x[:1], [[0], [1]])
    wrong: Any
    for wrong in ([1], 1, "p", ["p"]):
        with pytest.raises(InputError, match="places: expected for every row a list of what it lists"):
            run.predict_new(data.x[:1], wrong)
    with pytest.raises(InputError, match="places: lists by relation, and the run has none; give one list"):
        run.predict_new(data.x[:1], {"people": [[0]]})


def test_in_the_clear_reads_neighbours(run: hg.Run, data: Graph) -> None:
    covered, clear = run.predict_proba(data), run.predict_proba(data, in_the_clear=True)
    assert np.allclose(clear.sum(1), 1, atol=1e-5)
    assert not np.allclose(covered, clear)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_classes": 1}, "num_classes=1: expected 2 or more"),
        ({"num_boards": 3}, "num_boards=3: expected 1 or 2"),
        ({"board_share": 1.0}, "board_share=1.0: expected a number above 0 and below 1"),
        ({"max_readers": 2}, "a billboard reads no edges in training"),
        ({"accountant": "paper"}, "the paper's choices are for method='trees'"),
        ({"sigma_over_clip": 1.0}, "give epsilon, from which both follow"),
    ],
)
def test_plans_that_make_no_sense_are_refused(fields: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"num_train_nodes": 100, "num_classes": 3, "batch_size": 100, "steps": 10}
    with pytest.raises(PlanError, match=message):
        BillboardPlan(**given | fields)


def test_plans_survive_json() -> None:
    plan = BillboardPlan(num_train_nodes=100, num_classes=3, batch_size=50, steps=10).calibrated(epsilon=2.0)
    again = hg.PrivacyPlan.from_json(plan.to_json())
    assert again == plan
    assert again.epsilon <= 2.0
    assert again.fingerprint() == plan.fingerprint()
    assert plan.epsilon_after(0) < plan.epsilon_after(5) <= plan.epsilon


def test_poisson_batches_are_priced(data: Graph) -> None:
    run = hg.train(data, epsilon=4.0, batch_size=60, **SHORT)
    assert run.plan.sampling_rate < 1
    assert run.epsilon <= 4.0
