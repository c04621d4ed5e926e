"""`hushgraph plan`: the three figures it solves for, its output, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from plans import make_plan

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
        num_train_nodes=1000, num_layers=1, max_readers=3, batch_size=100, steps=20, paper_noise_multiplier=1
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
    assert (sender["max_reads"], sender["notes"]) == (None, [])


def test_no_noise_is_infinite_and_valid_json(run: Run) -> None:
    found = answer(run, *SMALL, "--steps", "5", "--paper-noise-multiplier", "0")
    assert (found["epsilon"], found["epsilon_group_of_two"], found["guarantee"]) == ("inf", "inf", "none")


def test_people_get_a_table_the_sentence_and_what_would_change(run: Run) -> None:
    code, out, err = run(*SMALL, "--steps", "20", "--paper-noise-multiplier", "1")
    assert (code, err) == (0, "")
    for words in (
        "epsilon, group of two",
        "changed trees (n)      4",
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
        (
            [*SMALL, "--steps", "5"],
            "found --steps: expected two of --steps, --sigma-over-clip (or --paper-noise-multiplier)",
        ),
        (SMALL, "found none: expected two of"),
        (
            [*SMALL, "--steps", "5", "--paper-noise-multiplier", "1", "--epsilon", "1"],
            "found --steps, --sigma-over-clip, --epsilon: expected two",
        ),
        ([*SMALL, "--steps", "5", "--paper-noise-multiplyer", "1"], "--paper-noise-multiplier"),
        ([*SMALL, "--steps", "many", "--epsilon", "1"], "--steps"),
        ([*SMALL, "--steps", "-1", "--paper-noise-multiplier", "1"], "steps=-1: expected at least 0"),
        ([*SMALL, "--steps", "5", "--epsilon", "nan"], "epsilon=nan: expected a finite number above 0"),
        ([*SMALL, "--steps", "5", "--epsilon", "1", "--delta", "2"], "delta=2.0: expected a finite number"),
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
