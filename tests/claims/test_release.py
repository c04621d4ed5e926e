"""Promise: `release/` holds what the guarantee covers and nothing else, and it is enough to work with."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import hushgraph as hg
from hushgraph.cli.app import main
from hushgraph.errors import InputError, RunError
from hushgraph.runs.about import find_checksum
from hushgraph.training.parts import Parts
from hushgraph.training.publish import publish_run
from own_parts import fix_noise, train_with

SIZE, FEATURES = 90, 4
FIGURE = "(val|test)_|figure_table"
SETTINGS: dict[str, Any] = {"epsilon": 2.0, "steps": 4, "hidden": 3, "device": "cpu", "directed": True}
TABLES: dict[str, Any] = {"classes": ["a", "b", "c"], "group": {"region": ["north", "south"]}}
# One row of every kind; the data has 40 training, 20 validation and 20 test rows, and 10 of no split.
ROWS = {"training": 3, "evaluated": 47, "other": 85}


def make_tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """People in three classes and two regions, and whom they list."""
    rng = np.random.default_rng(4)
    y = rng.integers(3, size=SIZE)
    x = rng.normal(size=(SIZE, FEATURES)) + np.eye(3, FEATURES)[y]
    nodes = pd.DataFrame(x, columns=[f"x{i}" for i in range(FEATURES)])
    nodes.insert(0, "id", [f"person-{i:03d}" for i in range(SIZE)])
    nodes["label"] = np.array(["a", "b", "c"])[y]
    nodes["region"] = rng.choice(["north", "south"], SIZE)
    nodes["split"] = np.repeat(np.array(["train", "val", "test", None]), [40, 20, 20, 10])
    ends = rng.integers(SIZE, size=(2, 400))
    ends = np.unique(ends[:, ends[0] != ends[1]], axis=1)
    edges = pd.DataFrame(
        {"source": nodes["id"].to_numpy()[ends[0]], "target": nodes["id"].to_numpy()[ends[1]]}
    )
    return nodes, edges


def change_row(nodes: pd.DataFrame, edges: pd.DataFrame, v: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same tables with another row of one person: features, label, group and list."""
    nodes = nodes.copy()
    nodes.loc[v, [f"x{i}" for i in range(FEATURES)]] = [9.0, -9.0, 9.0, -9.0]
    nodes.loc[v, "label"] = {"a": "b", "b": "c", "c": "a"}[nodes.loc[v, "label"]]
    nodes.loc[v, "region"] = {"north": "south", "south": "nowhere"}[nodes.loc[v, "region"]]
    own = edges["source"] == nodes.loc[v, "id"]
    listed = pd.DataFrame({"source": nodes.loc[v, "id"], "target": nodes["id"].iloc[[10, 50, 70, 80, 81]]})
    return nodes, pd.concat([edges[~own], listed], ignore_index=True)


def read_release(folder: Path) -> dict[str, bytes]:
    """Every file by its name."""
    release = folder / "release"
    files = {
        str(file.relative_to(release)): file.read_bytes()
        for file in sorted(release.rglob("*"))
        if file.is_file()
    }
    return {name: _sort_header(each) if "safetensors" in name else each for name, each in files.items()}


def _sort_header(content: bytes) -> bytes:
    """safetensors writes the keys of its header in an order that differs from call to call."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.dumps(json.loads(content[8:end]), sort_keys=True).encode() + content[end:]


@pytest.fixture(scope="module", params=[1, 2], ids=["one board", "two boards"])
def boards(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture(scope="module")
def releases(boards: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Every file of the release of the data as it is, and with the row of one kind changed; equal noise."""
    home = tmp_path_factory.mktemp("releases")
    tables = make_tables()
    given = {"none": tables} | {kind: change_row(*tables, v) for kind, v in ROWS.items()}
    for kind, data in given.items():
        train_with(fix_noise(), data, home / kind, is_fixed=True, num_boards=boards, **SETTINGS, **TABLES)
    return {kind: read_release(home / kind) for kind in given}


def hide_figures(name: str, content: bytes) -> Any:
    """What a file says beside numbers that noise covers."""
    if not name.endswith(".json"):
        return content
    values = json.loads(content)
    for key in ("sum", "figures", "tables"):
        values.pop(key, None)
    result = values.pop("result", {})
    return values, {key: value for key, value in result.items() if not re.match(FIGURE, key)}


# Files whose numbers have noise that a row of this kind pays for.
BOARDS = ("board-1.safetensors", "board-2.safetensors")
COVERED: dict[int, dict[str, tuple[str, ...]]] = {
    1: {
        "training": ("scaling.json", BOARDS[0], "weights.safetensors", "figures.json"),
        "evaluated": ("figures.json",),
        "other": (),
    },
    2: {
        "training": ("scaling.json", *BOARDS, "halfway.safetensors", "weights.safetensors", "figures.json"),
        "evaluated": (BOARDS[1], "weights.safetensors", "figures.json"),
        "other": (BOARDS[1], "weights.safetensors", "figures.json"),
    },
}


@pytest.mark.parametrize("kind", ROWS)
def test_one_row_changes_nothing_but_what_its_noise_covers(
    kind: str, boards: int, releases: dict[str, dict[str, bytes]]
) -> None:
    before, after, covered = releases["none"], releases[kind], COVERED[boards][kind]
    assert before.keys() == after.keys()
    differing = {name for name in before if before[name] != after[name]}
    assert differing <= {*covered, *(["release.json"] if covered else [])}
    # The change is seen where it is paid for, so that this compares no equal runs. Tables need not change
    # where they have the noise of boards alone.
    assert differing >= {name for name in covered if name != "figures.json" or kind == "evaluated"}
    for name in ("release.json", "figures.json", "README.md"):
        assert hide_figures(name, before[name]) == hide_figures(name, after[name]), name


def test_nothing_names_a_path_a_device_or_exact_counts(releases: dict[str, dict[str, bytes]]) -> None:
    files = releases["none"]
    assert set(files) >= {"release.json", "README.md", "figures.json", "weights.safetensors"}
    # Nothing that a run keeps beside is in it.
    assert not set(files) & {"ledger.jsonl", "metrics.jsonl", "run.json", "result.json"}
    keys = set(list_keys(json.loads(files["release.json"]))) | set(
        list_keys(json.loads(files["figures.json"]))
    )
    assert not keys & {"seed", "seconds", "device", "data", "warnings", "budget", "exact_figures", "resumed"}
    assert not keys & {"steps_lost", "processes", "num_edges", "train_accuracy", "evaluate_every", "versions"}
    check_words(files)
    assert "# DP-Billboard on the data\n" in files["README.md"].decode()
    # No seed and no key, of noise or of anything. A public split that was drawn has its number.
    assert not {key for key in keys if "seed" in key or "key" in key.split("_")}
    split = json.loads(files["release.json"])["public_split"]
    assert set(split) == {"shares", "draw", "training_nodes"}
    assert (split["shares"], split["draw"]) == (None, 0)


def test_times_of_files_do_not_tell_how_long_training_took(tmp_path: Path) -> None:
    """Programs that copy or pack folders keep them."""
    hg.train(make_tables(), out=tmp_path / "run", **SETTINGS, **TABLES)
    files = [*(tmp_path / "run" / "release").iterdir()]
    assert len(files) > 4
    assert len({file.stat().st_mtime_ns for file in files}) == 1


def list_keys(values: Any) -> Iterator[str]:
    if isinstance(values, dict):
        yield from values
        values = list(values.values())
    if isinstance(values, list):
        for each in values:
            yield from list_keys(each)


def test_nothing_is_released_of_a_run_whose_guarantee_does_not_hold(tmp_path: Path) -> None:
    run = train_with(Parts(), make_tables(), tmp_path / "run", seed=1, **SETTINGS, **TABLES)
    assert run.result["guarantee"] != "holds"
    assert not (tmp_path / "run" / "release").exists()
    with pytest.raises(RunError, match="its guarantee does not hold"):
        publish_run(run.folder)
    assert not (tmp_path / "run" / "release").exists()


def test_nothing_exact_is_shown_while_a_private_run_trains(tmp_path: Path) -> None:
    """Exact figures are for whoever asks for them, and stay outside of the release then too."""
    told: dict[bool, list[float | None]] = {False: [], True: []}
    for is_asked, heard in told.items():
        path = tmp_path / str(is_asked)
        hg.train(
            make_tables(),
            out=path,
            observer=lambda *given, heard=heard: heard.append(given[-1]),
            evaluate_every=1,
            exact_figures=is_asked,
            **SETTINGS,
            **TABLES,
        )
        kept = [
            json.loads(line)["val_accuracy"] for line in (path / "metrics.jsonl").read_text().splitlines()
        ]
        result = json.loads((path / "result.json").read_text())
        assert all(value is None for value in kept[:-1]) != is_asked
        assert ("exact_figures" in result) == is_asked
        assert "exact_figures" not in set(
            list_keys(json.loads((path / "release" / "release.json").read_text()))
        )
    assert set(told[False]) == {None}
    assert set(told[True]) != {None}


def test_a_release_alone_is_enough(boards: int, tmp_path: Path) -> None:
    data = make_tables()
    run = train_with(fix_noise(), data, tmp_path / "run", num_boards=boards, **SETTINGS, **TABLES)
    new = np.ones((2, FEATURES)), [["person-003", "person-050"], []]
    before = run.predict_proba(data), *run.predict_new(*new)
    shutil.copytree(tmp_path / "run" / "release", tmp_path / "copy")
    shutil.rmtree(tmp_path / "run")
    copy = hg.Run.load(tmp_path / "copy", device="cpu")
    for kept, read in zip(before, (copy.predict_proba(data), *copy.predict_new(*new)), strict=True):
        np.testing.assert_array_equal(kept, read)
    assert copy.figures == run.figures
    assert copy.figures
    assert copy.result["guarantee"] == "holds"
    assert copy.epsilon == run.epsilon
    assert copy.plan == run.plan
    assert copy.result["val_accuracy"] == run.result["val_accuracy"]
    # There is no ledger to go on with, whether it is whole or not.
    for name in ("", "weights.safetensors"):
        (tmp_path / "copy" / (name or "README.md")).unlink()
        with pytest.raises(RunError, match="published of a run, which cannot be resumed"):
            hg.resume(tmp_path / "copy", data)


def test_a_split_that_was_drawn_is_drawn_again_from_a_release_alone(tmp_path: Path) -> None:
    """Ballots of training rows are taken off their own readings: whoever predicts must know these rows."""
    nodes, edges = make_tables()
    data = nodes.drop(columns="split"), edges
    drawn = {"split": "0.5/0.2/0.3", "split_seed": 11}
    run = train_with(fix_noise(), data, tmp_path / "run", num_boards=1, **SETTINGS, **TABLES, **drawn)
    before = run.predict_proba(data)
    (tmp_path / "run" / "release").rename(tmp_path / "copy")
    shutil.rmtree(tmp_path / "run")
    copy = hg.Run.load(tmp_path / "copy", device="cpu")
    np.testing.assert_array_equal(copy.predict_proba(data), before)
    about = json.loads((tmp_path / "copy" / "release.json").read_text())
    assert (about["public_split"]["shares"], about["public_split"]["draw"]) == ("0.5/0.2/0.3", 11)


# Questions other than one of three classes, and what is declared for them.
TASKS: dict[str, dict[str, Any]] = {
    "binary": {"classes": ["a", "b"], "group": TABLES["group"]},
    "number": {"task": "number", "label": "spend", "bounds": (0.0, 100.0), "ignore": ["region"]},
    "labels": {"task": "labels", "label": ["likes_a", "likes_b"], "ignore": ["region"]},
}


def ask(nodes: pd.DataFrame, task: str) -> pd.DataFrame:
    """The table with the column or columns of a task in place of its classes."""
    asked = nodes.drop(columns="label") if task != "binary" else nodes.copy()
    if task == "binary":
        asked["label"] = nodes["label"].replace("c", "a")
    if task == "number":
        asked["spend"] = nodes["label"].map({"a": 10.0, "b": 35.5, "c": 80.25})
    if task == "labels":
        asked["likes_a"] = (nodes["label"] != "b").astype(int)
        asked["likes_b"] = (nodes["label"] != "a").astype(int)
    return asked


@pytest.mark.parametrize("task", TASKS)
def test_of_every_task_one_row_changes_nothing_but_what_its_noise_covers(task: str, tmp_path: Path) -> None:
    tables = make_tables()
    given = {"none": tables} | {kind: change_row(*tables, v) for kind, v in ROWS.items()}
    for kind, (nodes, edges) in given.items():
        data = ask(nodes, task), edges
        out = tmp_path / kind
        run = train_with(fix_noise(), data, out, is_fixed=True, num_boards=1, **SETTINGS, **TASKS[task])
        assert (run.result["task"], run.result["guarantee"]) == (task, "holds")
    files = {kind: read_release(tmp_path / kind) for kind in given}
    for kind in ROWS:
        covered = COVERED[1][kind]
        differing = {name for name in files["none"] if files["none"][name] != files[kind][name]}
        assert differing <= {*covered, *(["release.json"] if covered else [])}, kind
        assert differing >= {name for name in covered if name != "figures.json" or kind == "evaluated"}, kind
        for name in ("release.json", "figures.json", "README.md"):
            assert hide_figures(name, files["none"][name]) == hide_figures(name, files[kind][name]), name
    check_words(files["none"])


def check_words(files: dict[str, bytes]) -> None:
    """No file says what may not be in a release."""
    text = b"\n".join(
        files[name] for name in files if not name.endswith((".safetensors", ".parquet"))
    ).decode()
    for word in (
        *("/tmp", str(Path.home()), socket.gethostname(), "somebody", "people", "nowhere", "person-0"),
        *("seconds", 'seed"', "nodes.csv", "nodes.parquet"),
    ):
        assert word not in text, word


def test_the_release_of_an_engine_is_made_by_the_same_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One row changed: noise is new in every run, so that everything but noisy numbers is compared."""
    tables = make_tables()
    flags = "--engine duckdb --classes a,b,c --epsilon 2 --steps 4 --hidden 3 --json"
    files = {}
    for kind, data in {"none": tables, "evaluated": change_row(*tables, ROWS["evaluated"])}.items():
        (tmp_path / kind).mkdir()
        for name, table in zip(("nodes", "edges"), data, strict=True):
            table.drop(columns="region", errors="ignore").to_csv(tmp_path / kind / f"{name}.csv", index=False)
        out = tmp_path / f"{kind}-run"
        assert main(["train", str(tmp_path / kind), *flags.split(), "--out", str(out)]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["figures"] == "covered"
        files[kind] = read_release(out)
        copy = hg.Run.load(out / "release", device="cpu")
        assert copy.figures
        assert copy.predict_new(np.ones((1, FEATURES)), [["person-003"]])[0].shape == (1, 3)
    assert files["none"].keys() == files["evaluated"].keys()
    assert not set(files["none"]) & {"ledger.jsonl", "metrics.jsonl", "run.json", "result.json"}
    for name in ("release.json", "figures.json", "README.md"):
        before, after = (hide_noisy(name, each[name]) for each in files.values())
        assert before == after, name
    check_words(files["none"])


def hide_noisy(name: str, content: bytes) -> Any:
    """What a file says beside numbers that have noise, which differ from run to run."""
    if name == "README.md":
        return re.sub(r"\d+\.\d+%|too few to tell|0\.\d{4,}", "", content.decode())
    return hide_figures(name, content)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0.1}, "release.json says epsilon=0.1, its plan 2"),
        ({"epsilon_spent": 0.1}, "release.json says epsilon=0.1, its plan 2"),
        ({"epsilon": "none"}, "holds another epsilon"),
        ({"val_accuracy": 1.5}, "holds another val_accuracy"),
        ({"figure_table": [{"split": "val"}]}, "holds another figure_table"),
        ({"figure_table": 3}, "holds another figure_table"),
        (None, "has no result"),
    ],
)
def test_a_release_that_was_edited_with_care_is_refused(
    change: dict[str, Any] | None, words: str, tmp_path: Path
) -> None:
    """Its checksum is right, and there is no ledger to compare it with."""
    train_with(fix_noise(), make_tables(), tmp_path / "run", **SETTINGS, **TABLES)
    file = tmp_path / "run" / "release" / "release.json"
    about = json.loads(file.read_text())
    del about["sum"]
    about["result"] = None if change is None else about["result"] | change
    file.write_text(json.dumps({**about, "sum": find_checksum(about)}))
    with pytest.raises(RunError, match=re.escape(words)) as caught:
        hg.Run.load(file.parent, device="cpu")
    assert "restore" in str(caught.value)


def test_the_accuracy_attack_finds_no_exact_figure_in_a_release(tmp_path: Path) -> None:
    """Whether a validation row was empty could once be read off the published folder, in every case.

    The attacker knows everything but that row. The number of labelled validation rows was the denominator of
    every accuracy, and differs by one. Now it is in the sum of noisy tables alone.
    """
    epsilon, trials = 0.5, 30
    data = hg.datasets.synthetic(num_nodes=200, num_classes=3, num_features=6, seed=1)
    size = len(data.val_idx)
    fractions, totals, exact = [], [], []
    for trial in range(trials):
        v, is_empty = int(data.val_idx[trial]), trial % 2
        world = data.with_row_emptied(v, "sender") if is_empty else data
        settings: dict[str, Any] = {"epsilon": epsilon, "steps": 2, "hidden": 3, "device": "cpu"}
        run = hg.train(world, out=tmp_path / str(trial), exact_figures=True, **settings)
        files = read_release(tmp_path / str(trial))
        about, figures = json.loads(files["release.json"]), json.loads(files["figures.json"])
        shown = [about["result"]["val_accuracy"], about["result"]["val_macro_f1"]]
        shown += [row["value"] for row in about["result"]["figure_table"] if row["split"] == "val"]
        fractions.append(guess_by_fractions(shown, size) == is_empty)
        total = sum(np.sum(table) for table in figures["tables"]["val"]) / 2
        totals.append((total < size - 0.5) == is_empty)
        kept = [run.result["exact_figures"]["val_accuracy"]]
        exact.append(guess_by_fractions(kept, size))
    # What the attack reads off exact figures: right where it says anything at all.
    said = [guess == trial % 2 for trial, guess in enumerate(exact) if guess is not None]
    assert len(said) > 5
    assert all(said)
    # (epsilon, delta) allows this rate of right guesses.
    allowed = (np.exp(epsilon) + run.delta) / (1 + np.exp(epsilon))
    most = stats.binom.isf(1e-6, trials, allowed)
    assert most < trials
    assert sum(fractions) <= most
    assert sum(totals) <= most


def guess_by_fractions(shown: list[float | None], size: int) -> int | None:
    """0 where all numbers are fractions of `size`, 1 where they are fractions of one row less."""
    values = [value for value in shown if value is not None]

    def fits(rows: int) -> bool:
        return bool(values) and all(abs(value * rows - round(value * rows)) < 1e-9 for value in values)

    return None if fits(size) == fits(size - 1) else int(fits(size - 1))


def test_a_split_without_labels_has_no_figures(tmp_path: Path) -> None:
    nodes, edges = make_tables()
    nodes.loc[nodes["split"] == "val", "label"] = None
    run = train_with(fix_noise(), (nodes, edges), tmp_path / "run", num_boards=1, **SETTINGS, **TABLES)
    about = json.loads((tmp_path / "run" / "release" / "release.json").read_text())["result"]
    of_val = [row for row in about["figure_table"] if row["split"] == "val"]
    assert of_val
    # Noise alone: whether anything is shown follows from noisy counts, so that some figure may be.
    assert all(row["value"] is None or row["noise_std"] > 0 for row in of_val)
    assert run.result["figures"] == "covered"


def test_a_data_set_without_evaluated_rows_has_null_figures(tmp_path: Path) -> None:
    nodes, edges = make_tables()
    nodes["split"] = nodes["split"].where(nodes["split"] == "train", None)
    run = train_with(fix_noise(), (nodes, edges), tmp_path / "run", num_boards=1, **SETTINGS, **TABLES)
    assert run.result["guarantee"] == "holds"
    assert (run.result["val_accuracy"], run.result["test_accuracy"]) == (None, None)


def test_rows_of_no_declared_group_are_counted_nowhere(tmp_path: Path) -> None:
    """Without noise in the tables, groups add up to the rows that have one."""
    nodes, edges = make_tables()
    nodes.loc[[41, 42, 61], "region"] = ["nowhere", None, ""]
    counted: list[Any] = []
    real = Parts()

    def count_rows(task: Any, parts: Any, *, num_groups: int) -> Any:
        counted.append(real.count_rows(task, parts, num_groups=num_groups))
        return counted[-1]

    train_with(Parts(count_rows=count_rows), (nodes, edges), tmp_path / "run", **SETTINGS, **TABLES)
    for tables, rows in zip(counted, (18, 19), strict=True):
        assert [table.sum() for table in tables] == [rows, rows]
    val = nodes[nodes["split"] == "val"]
    for place, region in enumerate(["north", "south"]):
        assert counted[0][0][place].sum() == (val["region"] == region).sum()


@pytest.mark.parametrize(
    ("group", "words"),
    [({"town": ["north"]}, "'town'"), ({"region": []}, "region"), ({"region": ["n"], "x0": ["1"]}, "one")],
)
def test_groups_that_cannot_be_used_are_refused_in_one_line(
    group: dict[str, list[str]], words: str, tmp_path: Path
) -> None:
    nodes, edges = make_tables()
    data = nodes.drop(columns=[] if "region" in group else "region"), edges
    with pytest.raises(InputError) as caught:
        train_with(Parts(), data, tmp_path / "run", **SETTINGS, classes=["a", "b", "c"], group=group)
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", ["", "region", "=north", "region="])
def test_a_group_without_values_is_refused_on_the_command_line(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, edges = make_tables()
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    edges.to_csv(tmp_path / "edges.csv", index=False)
    code = main(["train", str(tmp_path), "--epsilon", "2", "--group", value, "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err.strip()
    assert code == 2
    assert "group=" in said
    assert len(said.splitlines()) == 1
