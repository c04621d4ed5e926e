"""Mistakes about what is asked of a node: tasks, bounds, classes, weights, scales, thresholds, predictions.

Every mistake is a command that fails and the command that its message leads to, which must succeed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from hushgraph.cli.app import main
from mistakes import Mistake, Run, all_of, follow, replace, write

COUNT = 40
HEAD = "id,age,paid in cash,fraud,days,gain,kind,genres,g_rock,g_pop"
LISTS = ("rock|pop", "pop", "rock|jazz", "jazz|pop", "rock")


def person(n: int) -> str:
    fraud, kind = ("yes" if n % 8 == 1 else "no"), "abc"[n % 3]
    gain = f'"{n - 20},5"'
    return f"p{n},{20 + n % 9},{n}%,{fraud},{n * 1.5},{gain},{kind},{LISTS[n % 5]},{n % 2},{n % 3 % 2}"


DATA = "people.csv --edges links.csv"
TABLES = f"{DATA} --features age"
END = "--non-private --dry-run"
TWO, NUMBER = f"train {TABLES} --label fraud --classes no,yes", f"train {TABLES} --label days --task number"
SETS = f"train {TABLES} --label genres --task labels --classes rock,pop,jazz --separator '|'"
PREDICT = f"{DATA} --out p.csv"


def wrong_two(flags: str, words: str, right: str = "") -> Mistake:
    """A mistake of two classes and what is to be given instead."""
    return Mistake(f"{TWO} {flags} {END}", words, f"{TWO} {right} {END}")


def wrong_number(flags: str, words: str, right: str = "--bounds 0,60") -> Mistake:
    return Mistake(f"{NUMBER} {flags} {END}", words, f"{NUMBER} {right} {END}")


TASKS = [
    wrong_two("--task nubmer", "did you mean 'number'?", "--task binary"),
    wrong_two("--task labels --rare", "it is for one class a node", "--rare"),
    wrong_two("--task classes --positive yes", "they belong to --task='binary'; leave them out"),
    wrong_two("--task number", "needs the lowest and the highest number"),
    wrong_two("--task number --bounds 0,1", "a number has no classes; leave out one"),
    Mistake(
        f"train {TABLES} --label fraud --task number --bounds 0,1 {END}",
        "'no' is not a number; leave out --task and --bounds and name the classes",
        f"{TWO} {END}",
    ),
    wrong_two("--unit euros", "it is for --task='number'; leave it out"),
    wrong_two("--positive yse", "no such class; did you mean 'yes'?", "--positive yes"),
    wrong_two("--positive fraud", "no such class; expected one of no, yes", "--positive yes"),
    Mistake(
        f"train {TABLES} --label kind --classes a,b,c --rare {END}",
        "the data has 3 classes; expected two; leave out task, positive and rare",
        f"train {TABLES} --label kind --classes a,b,c {END}",
    ),
    Mistake(
        f"train {TABLES} --label kind --classes a,b,c --task binary {END}",
        "leave out task, positive and rare",
        f"train {TABLES} --label kind --classes a,b,c {END}",
    ),
    Mistake(
        f"train {TABLES} --label fraud {END}", "name the classes in order (--classes a,b,c)", f"{TWO} {END}"
    ),
    Mistake(f"{TWO} {END}".replace("no,yes", "no,yess"), "did you mean 'yess'?", f"{TWO} {END}"),
    Mistake(
        f"{TWO} {END}".replace("no,yes", "no,yes,no"), "classes holds 'no' more than once", f"{TWO} {END}"
    ),
    Mistake(f"{TWO} {END}".replace("fraud", "fruad"), "did you mean 'fraud'?", f"{TWO} {END}"),
]
WEIGHTS = [
    wrong_two(
        "--class-weight balanced", "expected a weight for each class, as other=0.02", "--class-weight no=0.02"
    ),
    wrong_two("--class-weight no=2", "expected a number from 0 to 1", "--class-weight no=1"),
    wrong_two("--class-weight no=-1", "expected a number from 0 to 1", "--class-weight no=0"),
    wrong_two("--class-weight no=few", "expected a number from 0 to 1", "--class-weight no=0.1"),
    wrong_two("--class-weight ok=0.1", "no such class; expected one of no, yes", "--class-weight no=0.1"),
    wrong_two(
        "--class-weight =0.1", "expected a column and what it holds, as NAME=0.1", "--class-weight no=0.1"
    ),
]
NUMBERS = [
    wrong_number("", "needs the lowest and the highest number, as 0,100"),
    wrong_number("--bounds 60", "needs the lowest and the highest number, as 0,100"),
    wrong_number("--bounds 60,0", "expected two finite numbers, the lower one first"),
    wrong_number("--bounds 0,inf", "expected two finite numbers, the lower one first"),
    wrong_number("--bounds 0,many", "expected two numbers, as 0,100"),
    wrong_number("--bounds 0..60", "expected two numbers, as 0,100"),
    wrong_number("--bounds 0,60 --rare", "which has no classes; leave out one"),
    wrong_number("--bounds 0,60 --class-weight no=0.1", "which has no classes; leave out one"),
    wrong_number("--bounds 0,60 --classes no,yes", "a number has no classes; leave out one"),
    Mistake(
        f"train {TABLES} --label days --task binary --bounds 0,60 {END}",
        "bounds belong to --task='number'",
        f"{NUMBER} --bounds 0,60 {END}",
    ),
    Mistake(
        f"train {TABLES} --label days {END}",
        "'1.5' is not a class number; a number is predicted with --task number --bounds a,b",
        f"{NUMBER} --bounds 0,60 {END}",
    ),
    Mistake(
        f"train {TABLES} --label gain --task number --bounds=-20,20 {END}",
        "decimal commas are read with --decimal ,",
        f"train {TABLES} --label gain --task number --bounds=-20,20 --decimal , {END}",
    ),
    Mistake(
        f"train {TABLES} --label 'paid in cash' --task number --bounds 0,1 {END}",
        "percentages are read with --percent 'paid in cash'",
        f"train {TABLES} --label 'paid in cash' --task number --bounds 0,1 --percent 'paid in cash' {END}",
    ),
    Mistake(
        f"{NUMBER} --bounds 0,60 {END}",
        "'unknown' is not a number; leave out --task and --bounds and name the classes (--classes a,b,c), or "
        "count such cells as empty (--missing unknown)",
        f"{NUMBER} --bounds 0,60 --missing unknown {END}",
        before=replace("people.csv", ",3.0,", ",unknown,"),
    ),
]
LABELS = [
    Mistake(
        f"train {TABLES} --label genres --classes rock,pop,jazz {END}",
        "is not among the 3 classes; several labels a cell are read with --task labels --separator '|'",
        f"{SETS} {END}",
    ),
    Mistake(
        f"train {TABLES} --label genres {END}",
        "several labels a cell are read with --task labels --separator '|' --classes a,b,c",
        f"{SETS} {END}",
    ),
    Mistake(
        f"{SETS} {END}".replace(" --classes rock,pop,jazz", ""),
        "name them (--classes a,b,c)",
        f"{SETS} {END}",
    ),
    Mistake(f"{SETS} --class-weight pop=0.1 {END}", "it is for one class a node", f"{SETS} {END}"),
    Mistake(
        f"{SETS} --positive pop {END}", "every label is learnt for itself; leave it out", f"{SETS} {END}"
    ),
    Mistake(
        f"train {TABLES} --label g_rock,g_popp {END}",
        "did you mean 'g_pop'?",
        f"train {TABLES} --label g_rock,g_pop {END}",
    ),
    Mistake(
        f"train {TABLES} --label 'genre_*' {END}",
        "no column of the table matches",
        f"train {TABLES} --label 'g_*' {END}",
    ),
    Mistake(
        f"train {TABLES} --label g_rock,g_pop --classes rock,pop {END}",
        "the columns name the labels; leave out classes",
        f"train {TABLES} --label g_rock,g_pop {END}",
    ),
    Mistake(
        f"train {TABLES} --label g_rock,g_pop --task classes {END}",
        "give --task='labels', or name one column as label",
        f"train {TABLES} --label g_rock,g_pop --task labels {END}",
    ),
    Mistake(
        f"train {TABLES} --label g_rock,g_pop {END}",
        "'2' is not 0 or 1; correct it, or empty the cell",
        f"train {TABLES} --label g_rock,g_pop {END}",
        before=all_of(replace("people.csv", "rock,0,1\n", "rock,0,2\n")),
        correct=all_of(replace("people.csv", "rock,0,2\n", "rock,0,\n")),
    ),
]
SCALES = [
    wrong_two("--numbers scaled", "expected 'private', 'declared' or 'as-is'", "--numbers private"),
    wrong_two("--scale age=40", "as age=40,15, and perhaps log", "--scale age=40,15"),
    wrong_two("--scale age=40,15,exp", "as age=40,15, and perhaps log", "--scale age=40,15,log"),
    wrong_two("--scale age=40,0", "a spread above 0", "--scale age=40,1"),
    wrong_two("--scale kind=0,1", "give scale to columns of numbers alone", "--scale age=40,15"),
    wrong_two("--scale age=40,15 --scale age=1,1", "was given before; give it once", "--scale age=40,15"),
    Mistake(
        f"{TWO} {END}".replace("--features age", "--features age,'paid in cash'"),
        "percentages are read with --percent 'paid in cash'",
        f"{TWO} --percent 'paid in cash' {END}".replace("--features age", "--features age,'paid in cash'"),
    ),
]
CHECKS = [
    Mistake(
        f"check {DATA} --label days --task number --bounds 60,0",
        "the lower one first",
        f"check {DATA} --label days --task number --bounds 0,60",
    ),
    Mistake(
        f"check {DATA} --label days --task number --rare",
        "which has no classes; leave out one",
        f"check {DATA} --label days --task number",
    ),
    Mistake(
        f"check {DATA} --label fraud --positive yess", "did you mean 'yes'?", f"check {DATA} --label fraud"
    ),
    Mistake(
        f"check {DATA} --label kind --rare", "leave out task, positive and rare", f"check {DATA} --label kind"
    ),
    Mistake(
        f"check {DATA} --label genres --positive rock",
        "every label is learnt for itself; leave it out",
        f"check {DATA} --label genres",
    ),
    Mistake(
        f"check {DATA} --label fraud --class-weight balanced",
        "as other=0.02",
        f"check {DATA} --label fraud --class-weight no=0.02",
    ),
    Mistake(
        f"check {DATA} --label kind --task number",
        "no cell is a number; expected numbers for --task number; choose another --label",
        f"check {DATA} --label kind",
    ),
    Mistake(f"check {DATA} --label fruad", "did you mean 'fraud'?", f"check {DATA} --label fraud"),
    Mistake(
        f"check {DATA} --label fraud --id idd",
        "no column 'idd'; name it with --id; did you mean 'id'?",
        f"check {DATA} --label fraud --id id",
    ),
]
FLAGS = [
    Mistake(
        f"predict two {PREDICT} --threshold high",
        "expected a number",
        f"predict two {PREDICT} --threshold 0.5",
    ),
    Mistake(
        f"predict two {PREDICT} --threshold 50",
        "expected a probability, from 0 to 1",
        f"predict two {PREDICT} --threshold 0.5",
    ),
    Mistake(
        f"predict two {PREDICT} --threshold 0.5 --top 1%",
        "both say who is flagged; leave out one",
        f"predict two {PREDICT} --threshold 0.5",
    ),
    Mistake(
        f"predict number {PREDICT} --top 1%", "give --threshold=T", f"predict number {PREDICT} --threshold 30"
    ),
    Mistake(
        f"predict number {PREDICT} --threshold 90",
        "within the bounds of the label, from 0 to 60",
        f"predict number {PREDICT} --threshold 50",
    ),
    Mistake(
        f"predict three {PREDICT} --threshold 0.5",
        "leave it out, and use the columns of probabilities",
        f"predict three {PREDICT} --probabilities",
    ),
    Mistake(
        f"predict plain {PREDICT} --top 1%",
        "the run released no score bins",
        f"predict plain {PREDICT} --threshold 0.5",
    ),
    Mistake(
        f"predict two {PREDICT} --top 50%",
        "noise hides how many rows the released score bins have; give --threshold=T",
        f"predict two {PREDICT} --threshold 0.5",
    ),
    *(
        Mistake(
            f"predict two {PREDICT} --top {share}",
            "expected a share above 0% and below 100%, such as 1% or 0.01",
            f"predict two {PREDICT} --threshold 0.5",
        )
        for share in ("5", "0%", "101%", "many")
    ),
]
PREDICTIONS = [
    Mistake(
        f"predict two {PREDICT}",
        "no column 'age', given as feature; add or rename it (a run keeps the columns of its training)",
        f"predict two {PREDICT}",
        before=replace("people.csv", "id,age", "id,years"),
        correct=replace("people.csv", "id,years", "id,age"),
    ),
    Mistake(
        "predict two/release new.csv --edges lists.csv --new --out p.csv",
        "no column 'age', given as feature; add or rename it",
        "predict two/release new.csv --edges lists.csv --new --out p.csv",
        before=all_of(write("new.csv", "id,Age\nn1,3\n"), write("lists.csv", "source,target\nn1,p1\n")),
        correct=write("new.csv", "id,age\nn1,3\n"),
    ),
    Mistake(
        "predict two/release new.csv --edges lists.csv --new --out p.csv",
        "none of the 1 listed places is on the board: 'q1'; expected identifiers of the training data",
        "predict two/release new.csv --edges lists.csv --new --out p.csv",
        before=all_of(write("new.csv", "id,age\nn1,3\n"), write("lists.csv", "source,target\nn1,q1\n")),
        correct=write("lists.csv", "source,target\nn1,p1\n"),
    ),
    Mistake(
        f"report two {DATA} --about about.toml",
        "unknown key 'purpos'; did you mean 'purpose'?",
        f"report two {DATA} --about about.toml",
        before=write("about.toml", 'purpos = "to learn"\n'),
        correct=write("about.toml", 'purpose = "to learn"\n'),
    ),
    Mistake(
        f"plan {TABLES} --label days --task number --epsilon 4",
        "needs the lowest and the highest number",
        f"plan {TABLES} --label days --task number --bounds 0,60 --epsilon 4",
    ),
    Mistake(
        f"{TWO} --group kind {END}",
        "expected a column and what it holds, as region=north|south",
        f"{TWO} --group 'kind=a|b|c' {END}",
    ),
]
MISTAKES = [*TASKS, *WEIGHTS, *NUMBERS, *LABELS, *SCALES, *CHECKS, *FLAGS, *PREDICTIONS]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People with labels of every kind, and runs on them."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "people.csv").write_text("\n".join([HEAD, *map(person, range(COUNT))]) + "\n")
    links = [f"p{n},p{(n * 7 + 3) % COUNT}" for n in range(COUNT)]
    (folder / "links.csv").write_text("\n".join(["source,target", *links]) + "\n")
    quick = "--steps 1 --hidden 4 --quiet --device cpu"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in (
            f"{TWO} --epsilon 4 --out two",
            f"{TWO} --non-private --out plain",
            f"{NUMBER} --bounds 0,60 --epsilon 4 --out number",
            f"train {TABLES} --label kind --classes a,b,c --epsilon 4 --out three",
        ):
            assert main(shlex.split(f"{line} {quick}")) == 0
    return folder


def test_there_are_seventy() -> None:
    assert len({(mistake.line, mistake.before) for mistake in MISTAKES}) >= 70


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.line}: {mistake.words}"[-90:])
@pytest.mark.usefixtures("own_folder")
def test_a_mistake_and_its_remedy(mistake: Mistake, world: Path, run: Run) -> None:
    follow(mistake, run, world, Path())
