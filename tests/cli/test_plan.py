"""`hushgraph plan`: the three figures it solves for, its output, and its exit codes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph._text import rounded_up
from hushgraph.accounting.accountants import gaussian_epsilon, gaussian_shift
from hushgraph.privacy.budget import MOST_RUNS, DataBudget
from hushgraph.privacy.charges import BoardCharge
from hushgraph.privacy.run_charge import RunCharge
from plans import make_plan
from run_charges import write_charge

SMALL = ["plan", "--train-nodes", "1000", "--max-readers", "3", "--batch-size", "100"]
Run = Callable[..., tuple[int, str, str]]


def answer(run: Run, *arguments: str) -> dict[str, Any]:
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize(("owner", "guarantee"), [("reader", "claimed by the paper"), ("sender", "holds")])
def test_the_published_figure(run: Run, owner: str, guarantee: str) -> None:
    flags = (
        f"plan --train-nodes 90941 --layers 1 --max-readers 7 --edge-owner {owner} --sampler paper "
        "--accountant paper --batch-size 10000 --steps 668 --paper-noise-multiplier 2 --delta 1.0996e-6"
    )
    found = answer(run, *flags.split())
    assert round(found["epsilon"], 2) == 11.99
    assert found["guarantee"] == guarantee
    assert (found["changed_trees"], found["sigma_over_clip"], found["delta"]) == (8, 32.0, 1.0996e-6)


def test_noise_and_steps_give_epsilon(run: Run) -> None:
    found = answer(run, *SMALL, "--steps", "20", "--paper-noise-multiplier", "1")
    plan = make_plan(
        num_train_nodes=1000,
        num_layers=1,
        max_readers=3,
        max_reads=16,
        batch_size=100,
        steps=20,
        paper_noise_multiplier=1,
    )
    assert {key: found[key] for key in plan.summary()} == plan.summary()
    assert found["solved_for"] == "epsilon"
    assert found["statement"].startswith("Training is (")


def test_epsilon_and_steps_give_noise(run: Run) -> None:
    found = answer(run, *SMALL, "--steps", "20", "--epsilon", "3")
    assert found["solved_for"] == "sigma-over-clip"
    assert 2.99 < found["epsilon"] <= 3.0
    again = answer(
        run, *SMALL, "--steps", "20", "--paper-noise-multiplier", repr(found["paper_noise_multiplier"])
    )
    assert again["epsilon"] == found["epsilon"]


def test_noise_and_epsilon_give_steps(run: Run) -> None:
    found = answer(run, *SMALL, "--paper-noise-multiplier", "1", "--epsilon", "2")
    assert found["solved_for"] == "steps"
    assert found["epsilon"] <= 2.0
    more = answer(run, *SMALL, "--paper-noise-multiplier", "1", "--steps", str(found["steps"] + 1))
    assert more["epsilon"] > 2.0


def test_readers_get_a_bound_on_reads_and_are_told(run: Run) -> None:
    found = answer(run, *SMALL, "--edge-owner", "reader", "--steps", "5", "--paper-noise-multiplier", "1")
    assert (found["max_reads"], found["changed_trees"]) == (3, 4 + 3)
    assert found["notes"] == ["--max-reads was not given; reader-owned edges need one, so D = K = 3."]
    given = answer(
        run,
        *SMALL,
        "--edge-owner",
        "reader",
        "--max-reads",
        "1",
        "--steps",
        "5",
        "--paper-noise-multiplier",
        "1",
    )
    assert (given["max_reads"], given["changed_trees"], given["notes"]) == (1, 5, [])
    sender = answer(run, *SMALL, "--steps", "5", "--paper-noise-multiplier", "1")
    # As train chooses it: it costs nothing.
    assert (sender["max_reads"], sender["notes"]) == (16, [])


def test_people_get_a_table_the_sentence_and_what_would_change(run: Run) -> None:
    code, out, err = run(*SMALL, "--steps", "20", "--paper-noise-multiplier", "1")
    assert (code, err) == (0, "")
    for words in (
        "epsilon, group of two",
        "changed trees (n)             4",
        "<- solved for",
        "Training is (",
        "What would change, with the same noise",
        "K = 0",
        "K = 6",
        "batch = 200",
        "steps = 40",
        "D may be anything",
    ):
        assert words in out
    assert "What is not covered" not in out


def test_what_would_change_adds_the_same_noise(run: Run) -> None:
    _, out, _ = run(*SMALL, "--steps", "20", "--paper-noise-multiplier", "1", "--edge-owner", "reader")
    rows = {line.split("  ")[0]: line.split() for line in out.split("What would change")[1].splitlines()}
    # n = 7 and lambda = 1 is sigma / C = 14, which is lambda = 1.4 where n = 5.
    fewer = answer(
        run,
        *SMALL,
        "--steps",
        "20",
        "--paper-noise-multiplier",
        "1.4",
        "--edge-owner",
        "reader",
        "--max-reads",
        "1",
    )
    assert rows["D = 1"][3] == "5"
    assert float(rows["D = 1"][4]) == pytest.approx(fewer["epsilon"], abs=0.01)


def test_neighbours_that_cannot_be_priced_are_infinite_or_say_so(run: Run) -> None:
    # At this noise the paper's accountant has an answer for one row and none for two.
    flags = "plan --train-nodes 500 --max-readers 2 --batch-size 50 --steps 10 --paper-noise-multiplier 0.04"
    found = answer(run, *flags.split(), "--accountant", "paper")
    assert found["epsilon"] > 0
    assert found["epsilon_group_of_two"] == "inf"
    code, out, _ = run(*flags.split(), "--accountant", "paper")
    assert code == 0
    assert "not priced" in out


def test_epsilon_alone_prices_what_train_would_do(run: Run) -> None:
    about = answer(run, "plan", "--train-nodes", "1000", "--max-readers", "3", "--epsilon", "4")
    given = ("--batch-size", "1000", "--steps", "600", "--epsilon", "4")
    assert about["sigma_over_clip"] == answer(run, *SMALL[:5], *given)["sigma_over_clip"]
    _, out, _ = run("plan", "--train-nodes", "300000", "--max-readers", "3", "--epsilon", "4")
    assert "--steps was not given; a run takes 600 by default." in out
    assert "--batch-size was not given; a run takes 200,000 by default." in out
    code, _, err = run("plan", "--train-nodes", "0", "--max-readers", "3", "--epsilon", "4")
    assert (code, err.count("\n")) == (2, 1)


def test_explain_prints_the_whole_statement(run: Run) -> None:
    _, out, _ = run(*SMALL, "--steps", "0", "--paper-noise-multiplier", "1", "--explain")
    assert "What is not covered" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan"], "--train-nodes"),
        ([*SMALL, "--steps", "5"], "no budget: give --epsilon=E or --sigma-over-clip=S"),
        (SMALL, "no budget: give --epsilon=E or --sigma-over-clip=S"),
        (
            [*SMALL, "--steps", "5", "--paper-noise-multiplier", "1", "--epsilon", "1"],
            "--steps=5: two of them give the third; leave one out",
        ),
        (
            [*SMALL, "--steps", "5", "--paper-noise-multiplier", "0"],
            "--paper-noise-multiplier=0.0: expected a finite number above 0",
        ),
        ([*SMALL, "--steps", "5", "--paper-noise-multiplyer", "1"], "--paper-noise-multiplier"),
        ([*SMALL, "--steps", "many", "--epsilon", "1"], "--steps"),
        ([*SMALL, "--steps", "-1", "--paper-noise-multiplier", "1"], "steps=-1: expected at least 0"),
        ([*SMALL, "--steps", "5", "--epsilon", "nan"], "epsilon=nan: expected a finite number above 0"),
        ([*SMALL, "--steps", "5", "--epsilon", "1", "--delta", "2"], "delta=2.0: expected a number above 0"),
        (
            [*SMALL, "--steps", "5", "--epsilon", "1", "--sampler", "papr", "--edge-owner", "me"],
            "--edge-owner='me': expected 'sender' or 'reader'; --sampler='papr': expected 'stable'",
        ),
        (["plam"], "plan"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run: Run, arguments: list[str], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("hushgraph: ")
    assert err.count("\n") == 1
    assert words in err


def test_a_budget_that_allows_no_step_is_exit_code_3(run: Run) -> None:
    code, out, err = run(*SMALL, "--paper-noise-multiplier", "0.01", "--epsilon", "0.01", "--delta", "1e-9")
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert "it pays for no step" in err


def test_help_and_version_end_well(run: Run) -> None:
    for arguments in ([], ["--help"], ["plan", "--help"], ["--version"]):
        code, out, err = run(*arguments)
        assert (code, err) == (0, "")
        assert "hushgraph" in out


BOARDS = ["plan", "--train-nodes", "1000", "--num-classes", "3", "--epsilon", "1", "--delta", "1e-6"]


def make_budget(run: Run, path: Path, *flags: str) -> Path:
    assert run("budget", path, "--delta", "1e-6", *flags)[0] == 0
    return path


def test_a_billboard_without_data_is_priced_as_with_data(run: Run) -> None:
    with_data = answer(run, "plan", "demo", "--epsilon", "4")
    names = "abcdefghijkl"[: hg.datasets.load("demo").num_classes]
    public = ["--train-nodes", str(with_data["train_nodes"]), "--epsilon", "4"]
    for classes in (
        ("--num-classes", str(len(names))),
        ("--classes", str(len(names))),
        ("--classes", ",".join(names)),
    ):
        found = answer(run, "plan", *public, *classes)
        different = {"notes"} | {key for key in found if found[key] != with_data[key]}
        assert different == {"notes"}
    assert found["method"] == "billboard"
    assert found["notes"] == [
        "--steps was not given; a run takes 300 by default.",
        f"--batch-size was not given; a run takes {found['batch_size']:,} by default.",
    ]
    # Named, it is the same; what belongs to trees makes it a plan of trees.
    assert answer(run, "plan", "--method", "billboard", *public, *classes) == found
    assert answer(run, "plan", *public, "--max-readers", "2")["method"] == "trees"


@pytest.mark.parametrize("task", [(), ("--task", "classes"), ("--positive", "a"), ("--rare",)])
def test_two_classes_without_data_are_priced_as_with_data(
    run: Run, tmp_path: Path, task: tuple[str, ...]
) -> None:
    rows = [
        f"p{n},{n % 7},{'ab'[n % 2]},{'train' if n < 60 else 'val' if n < 80 else 'test'}" for n in range(90)
    ]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,age,label,split", *rows]))
    (tmp_path / "edges.csv").write_text("source,target\np0,p1\np2,p4\n")
    flags = ["--classes", "a,b", "--epsilon", "4", *task]
    # Without data there are no columns to scale.
    with_data = answer(run, "plan", str(tmp_path), *flags, "--numbers", "as-is")
    found = answer(run, "plan", "--train-nodes", "60", *flags)
    assert {key for key in found if found[key] != with_data[key]} == {"notes"}
    assert found["figures"] == "covered"


def test_the_mlp_without_data_needs_no_readers(run: Run) -> None:
    with_data = answer(run, "plan", "demo", "--model", "mlp", "--epsilon", "1")
    public = ["plan", "--train-nodes", str(with_data["train_nodes"]), "--model", "mlp", "--epsilon", "1"]
    found = answer(run, *public)
    assert (found["method"], found["changed_trees"]) == ("rows", 1)
    assert found["notes"][-1] == "--num-classes was not given; figures are those of three classes or more."
    told = answer(run, *public, "--num-classes", "3")
    assert told["notes"] == found["notes"][:-1]
    for each in (found, told):
        assert each["figures"] == "covered"
        # Noise that the default K has no part in may differ in its last bits.
        assert each["epsilon_evaluated"] == pytest.approx(with_data["epsilon_evaluated"], rel=1e-9)
        assert each["statement"] == with_data["statement"]
    assert "moves one table by at most 1" in answer(run, *public, "--num-classes", "2")["statement"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--train-nodes 9 --epsilon 1", "no --num-classes (--max-readers for trees): give it, or DATA"),
        ("--num-classes 3", "no --train-nodes and no --epsilon: give all of them, or DATA"),
        ("--train-nodes 9 --num-classes 3 --epsilon 0", "--epsilon=0.0: expected a finite number above 0"),
        ("--train-nodes 9 --num-classes 3 --epsilon 1 --delta 1", "--delta=1.0: expected a number above 0"),
        ("--train-nodes 0 --num-classes 3 --epsilon 1", "--train-nodes=0: expected 1 or more"),
        ("--train-nodes 9 --num-classes 1 --epsilon 1", "--num-classes=1: expected 2 or more"),
        ("--train-nodes 9 --classes 0 --epsilon 1", "--num-classes=0: expected 2 or more"),
        ("--train-nodes 9 --classes a,b --num-classes 3 --epsilon 1", "that is 2; give one of them"),
        ("--train-nodes 9 --classes a,b --epsilon 1 --positive c", "--positive='c': no such class"),
        ("--train-nodes 9 --num-classes 3 --epsilon 1 --rare", "--task='binary': the data has 3 classes"),
        ("--train-nodes 9 --num-classes 3 --epsilon 1 --label school", "--label without DATA"),
        ("--train-nodes 9 --max-readers 3 --steps 3 --epsilon 1 --classes 3", "--classes without DATA"),
        ("--train-nodes 9 --model mlp --steps 3 --epsilon 1 --label school", "--label without DATA"),
        ("--train-nodes 9 --model mlp --steps 3 --epsilon 1 --classes 1", "--num-classes=1: expected 2"),
        ("--model mlp --epsilon 1", "no --train-nodes: give it, or DATA"),
        ("--method billboard --max-readers 3", "--max-readers=3 with --method='billboard'"),
        ("--train-nodes 9 --num-classes 3 --epsilon 1 --group-size 0", "--group-size=0: expected 1 to 300"),
        ("--train-nodes 9 --num-classes 3 --epsilon 1 --group-size -3", "--group-size=-3: expected 1 to 300"),
        ("--train-nodes 9 --num-classes 3 --epsilon 1 --group-size 301", "--group-size=301: expected 1 to"),
        ("--train-nodes 9 --num-classes 3 --epsilon 1 --budget nowhere", "--budget=nowhere: no such file"),
    ],
)
def test_what_is_missing_or_wrong_without_data_is_one_line(run: Run, flags: str, words: str) -> None:
    code, out, err = run("plan", *flags.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_a_group_of_rows(run: Run) -> None:
    assert "epsilon_group" not in answer(run, *BOARDS)
    for size in (1, 2, 7, 300):
        found = answer(run, *BOARDS, "--group-size", str(size))
        mu = gaussian_shift(found["epsilon"], found["delta"])
        # Full batches: a group of m rows is one Gaussian, moved m times as far.
        assert found["epsilon_group"] == pytest.approx(gaussian_epsilon(size * mu, found["delta"]), rel=1e-6)
        assert found["group_size"] == size
    assert answer(run, *BOARDS, "--group-size", "2")["epsilon_group"] == found["epsilon_group_of_two"]
    assert "epsilon, group of 7           8." in run(*BOARDS, "--group-size", "7")[1]
    # At this noise the paper's accountant has an answer for one row and none for two.
    flags = "plan --train-nodes 500 --max-readers 2 --batch-size 50 --steps 10 --paper-noise-multiplier 0.04"
    assert answer(run, *flags.split(), "--accountant", "paper", "--group-size", "2")["epsilon_group"] == "inf"


def test_runs_that_fit_into_a_budget(run: Run, tmp_path: Path) -> None:
    budget = make_budget(run, tmp_path / "people.ledger", "--epsilon", "5")
    found = answer(run, *BOARDS, "--budget", str(budget))
    # Full batches: k runs are one Gaussian, moved sqrt(k) times as far.
    mu = gaussian_shift(found["epsilon"], found["delta"])
    after = {runs: gaussian_epsilon(math.sqrt(runs) * mu, 1e-6) for runs in range(1, 30)}
    assert found["runs_that_fit"] == max(runs for runs in after if after[runs] <= 5)
    assert found["epsilon_after_12_runs"] == pytest.approx(after[12])
    assert found["epsilon_left_after_12_runs"] == pytest.approx(5 - after[12])
    assert after[12] < 12 * found["epsilon"] / 2
    code, out, err = run(*BOARDS, "--budget", budget)
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    assert f"its total is epsilon 5 at delta = 1e-6, and 0.00 is spent. {found['runs_that_fit']} more" in text
    assert f"would bring what is spent to {rounded_up(after[12])} and leave 1.09." in text


def test_what_was_charged_before_leaves_less(run: Run, tmp_path: Path) -> None:
    budget = make_budget(run, tmp_path / "people.ledger", "--epsilon", "5")
    plan = answer(run, *BOARDS)
    mu = gaussian_shift(plan["epsilon"], plan["delta"])
    board = BoardCharge(name="board-1", noise_std=1 / (3 * mu))
    about = {"epsilon": 3, "delta": 1e-6, "accountant": "pair", "command": "train", "data": ""}
    write_charge(DataBudget.open(budget), RunCharge(run="a", charges=(board,), **about))
    before = budget.read_bytes()
    found = answer(run, *BOARDS, "--budget", str(budget))
    fits = [runs for runs in range(30) if gaussian_epsilon(math.sqrt(9 + runs) * mu, 1e-6) <= 5]
    assert found["runs_that_fit"] == max(fits) == 9
    assert "9 more runs like this one fit." in run(*BOARDS, "--budget", budget)[1]
    assert "which the total does not allow." in run(*BOARDS, "--budget", budget)[1]
    assert budget.read_bytes() == before


def test_where_none_fits_a_plan_is_still_a_plan(run: Run, tmp_path: Path) -> None:
    budget = make_budget(run, tmp_path / "people.ledger", "--epsilon", "0.5")
    code, out, err = run(*BOARDS, "--budget", budget)
    assert (code, err) == (0, "")
    assert "No run like this one fits: it would be 1.00; take a smaller epsilon." in out
    found = answer(run, *BOARDS, "--budget", str(budget))
    assert (found["runs_that_fit"], found["epsilon_left_after_12_runs"]) == (0, 0.0)
    exact = make_budget(run, tmp_path / "exact.ledger", "--epsilon", "1.1")
    assert "1 more run like this one fits." in run(*BOARDS, "--budget", exact)[1]


def test_a_budget_without_a_total_and_runs_without_a_guarantee(run: Run, tmp_path: Path) -> None:
    records = make_budget(run, tmp_path / "records.ledger")
    found = answer(run, *BOARDS, "--budget", str(records))
    assert (found["runs_that_fit"], found["epsilon_left_after_12_runs"]) == (None, None)
    assert "no total is set" in run(*BOARDS, "--budget", records)[1]
    budget = make_budget(run, tmp_path / "people.ledger", "--epsilon", "5")
    claimed = ("--sampler", "paper", "--edge-owner", "reader")
    bare = [*SMALL, "--steps", "5", "--paper-noise-multiplier", "1", *claimed, "--budget", str(budget)]
    found = answer(run, *bare)
    assert (found["runs_that_fit"], found["epsilon_after_12_runs"]) == (0, "inf")
    assert "This run has no guarantee, so no total allows it." in run(*bare)[1]
    # Nothing is released in no steps.
    free = [*SMALL, "--steps", "0", "--paper-noise-multiplier", "1", "--budget", str(budget)]
    assert answer(run, *free)["runs_that_fit"] == MOST_RUNS
    assert "At least 1,048,576 more runs like this one fit." in run(*free)[1]
