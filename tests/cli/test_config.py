"""`--config run.toml` and `--print-config`: what a file may say, who wins, and how mistakes are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("own_folder")
Run = Callable[..., tuple[int, str, str]]
PLAN = """
train-nodes = 1000
batch_size = 100
max-readers = 3
steps = 20
paper_noise_multiplier = 1    # a whole number is a number too
json = true
"""


def written(text: str, name: str = "run.toml") -> str:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    return name


def settings(run: Run, *arguments: Any) -> dict[str, str]:
    """What --print-config prints, as text."""
    code, out, err = run(*arguments, "--print-config")
    assert (code, err) == (0, "")
    first, *lines = out.splitlines()
    assert first == f"# hushgraph {arguments[0]} --config FILE.toml"
    return dict(line.split(" = ", 1) for line in lines)


def test_a_file_stands_for_its_flags(run: Run) -> None:
    code, out, err = run("plan", "--config", written(PLAN))
    assert (code, err) == (0, "")
    flags = "--train-nodes 1000 --batch-size 100 --max-readers 3 --steps 20 --paper-noise-multiplier 1 --json"
    assert run("plan", *flags.split())[1] == out
    assert json.loads(out)["steps"] == 20


@pytest.mark.parametrize("before", [True, False])
def test_the_command_line_wins(run: Run, before: bool) -> None:
    file, flag = ["--config", written(PLAN)], ["--steps", "7"]
    _, out, _ = run("plan", *(file + flag if before else flag + file))
    assert json.loads(out)["steps"] == 7


def test_train_and_compare_take_files_and_data_may_be_in_them(run: Run) -> None:
    text = 'data = "demo"\nepsilon = 2\nmodel = "gin"\nsymmetrize = true\nsplit = "0.5/0.2/0.3"\n'
    file = written(text)
    for command in ("train", "compare"):
        found = settings(run, command, "--config", file)
        assert found.items() >= {"data": '"demo"', "epsilon": "2", "model": '"gin"'}.items()
        assert found.items() >= {"symmetrize": "true", "split": '"0.5/0.2/0.3"'}.items()
    assert settings(run, "train", "other.npz", "--config", file)["data"].endswith('/other.npz"')


def test_flags_that_repeat_are_lists(run: Run, tmp_path: Path) -> None:
    text = 'data = "nodes.csv"\nedges = "edges.csv"\nepsilon = 1\nhash = ["city=16", "street=8"]\n'
    found = settings(run, "train", "--config", written(text))
    assert found["hash"] == '["city=16", "street=8"]'
    assert found["edges"] == json.dumps(str(tmp_path / "edges.csv"))
    found = settings(run, "train", "--config", "run.toml", "--hash", "town=4")
    assert found["hash"] == '["town=4"]'


def test_paths_are_relative_to_the_file_and_names_stay_names(run: Run, tmp_path: Path) -> None:
    file = written('data = "people.npz"\nout = "runs/one"\nepsilon = 1\n', "project/run.toml")
    found = settings(run, "train", "--config", file)
    assert found["data"] == json.dumps(str(tmp_path / "project/people.npz"))
    assert found["out"] == json.dumps(str(tmp_path / "project/runs/one"))
    # What the command line gives is relative to where it is given.
    found = settings(run, "train", "there.npz", "--config", file, "--out", "mine")
    assert found["data"] == json.dumps(str(tmp_path / "there.npz"))
    assert found["out"] == json.dumps(str(tmp_path / "mine"))
    file = written('data = "/elsewhere/people.npz"\nout = "~/runs"\nepsilon = 1\n')
    found = settings(run, "train", "--config", file)
    assert found["data"] == '"/elsewhere/people.npz"'
    assert found["out"] == json.dumps(str(Path("~/runs").expanduser()))
    # A mistyped name is answered as one, not as a file that is missing.
    code, _, err = run("train", "--config", written('data = "demon"\nepsilon = 1\n'))
    assert code == 2
    assert "did you mean 'demo'?" in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("epsilonn = 4", "unknown key 'epsilonn' (did you mean 'epsilon'?)"),
        ("max_reader = 4", "unknown key 'max_reader' (did you mean 'max-readers'?)"),
        ("zzz = 4", "unknown key 'zzz'; see --help"),
        ("learning-rate = 0.1", "unknown key 'learning-rate' (did you mean 'lr'?)"),
        ("private = true", "unknown key 'private'; see --help"),
        ('config = "other.toml"', "unknown key 'config'"),
        ("[train]\nepsilon = 4", "unknown key 'train'"),
        ('steps = "6"', 'steps="6": expected a whole number'),
        ("steps = 6.0", "steps=6.0: expected a whole number"),
        ("steps = true", "steps=true: expected a whole number"),
        ('epsilon = "4"', 'epsilon="4": expected a number'),
        ("epsilon = [4]", "epsilon=[4]: expected a number"),
        ("epsilon = true", "epsilon=true: expected a number"),
        ("symmetrize = 1", "symmetrize=1: expected true or false"),
        ("model = 1", "model=1: expected a string"),
        ("hash = 16", "hash=16: expected a list, as [16]"),
        ("hash = [16]", "hash=16: expected a string"),
        ("out = 2024-01-01", 'out="2024-01-01": expected a string, the path'),
        ("data = {a = 1}", 'data={"a": 1}: expected a string'),
        ("max-readers = 1\nmax_readers = 1", "max-readers is given twice, with - and with _"),
        ('model = "gnc"', "model='gnc': expected 'gcn', 'gin', 'gat' or 'mlp' (did you mean 'gcn'?)"),
        ("epsilon = ", "not TOML (Invalid value"),
        ("epsilon = 1\nepsilon = 2", "not TOML ("),
    ],
)
def test_mistakes_are_one_line_with_file_and_key(run: Run, tmp_path: Path, line: str, words: str) -> None:
    file = written(line + "\n")
    code, out, err = run("train", "demo", "--config", file)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "run.toml: " in err
    assert words in err
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


def test_files_that_cannot_be_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for file, words in (
        ("nowhere.toml", "nowhere.toml: cannot be read (No such file"),
        (".", "Is a directory"),
        ("binary.toml", "not TOML ("),
    ):
        code, out, err = run("plan", "--config", file)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert words in err


def test_a_resumed_run_keeps_its_settings(run: Run) -> None:
    file = written('data = "demo"\nepsilon = 4\ndevice = "cpu"\n')
    code, out, err = run("train", "--config", file, "--resume", "nowhere", "--steps", "3")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "run.toml: --epsilon, --steps: a resumed run keeps its settings" in err
    # Data and device are not settings.
    file = written('data = "demo"\ndevice = "cpu"\n')
    assert "no run.json in it" in run("train", "--config", file, "--resume", "nowhere")[2]


def test_what_print_config_prints_can_be_read(run: Run, tmp_path: Path) -> None:
    flags = ["--epsilon", "0.5", "--max-reads", "4", "--out", 'a "quoted" näme', "--seed", "3", "--json"]
    _, first, _ = run("train", "people.npz", *flags, "--print-config")
    assert 'out = "' in first
    assert "json" not in first
    file = written(first, "elsewhere/again.toml")
    assert run("train", "--config", file, "--print-config") == (0, first, "")
    assert not list(tmp_path.glob("runs*"))
