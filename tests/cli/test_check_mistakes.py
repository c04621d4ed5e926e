"""Mistakes with tables as people have them: one line, nothing left behind, and a remedy that works.

Every mistake is a command that fails and the command that its message leads to, which must succeed.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from hushgraph.cli.app import main
from mistakes import Change, Mistake, Run, all_of, follow, replace, write

COUNT = 24
SPLITS = ("train", "train", "val", "test")
HEAD = ("account", "balance", "share", "active", "opened", "born", "sector", "fraud", "split")


def account(n: int) -> list[str]:
    born = f"{n % 28 + 1:02}.0{n % 9 + 1}.19{60 + n}"
    cells = [f"A{n}", f"{n % 9 + 1}.{n:03},5", f"{n}%", ("yes", "no")[n % 2], f"2020-01-{n + 1:02}", born]
    return [*cells, ("farm", "shop")[n % 2], ("ok", "bad")[n % 3 == 0], SPLITS[n % 4]]


def lines(rows: list[list[str]], delimiter: str) -> str:
    return "".join(delimiter.join(row) + "\n" for row in rows)


LINKS = [[f"A{n}", f"A{(n * 5 + 1) % COUNT}", str(n)] for n in range(COUNT)]
RULES = (
    "--id account --label fraud --classes ok,bad --source payer --target payee --decimal , --thousands . "
    "--percent share --boolean active --date opened=2000-01-01 --date born=1900-01-01 "
    "--date-format born=%d.%m.%Y --hash sector=4"
)
DATA = "bank/accounts_*.csv --edges 'bank/tx_*.csv'"
END = "--non-private --dry-run"
GOOD = f"train {DATA} {RULES} {END}"


def without(flags: str) -> str:
    assert flags in GOOD
    return GOOD.replace(f" {flags}", "")


def instead(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def change(name: str, old: str, new: str) -> Change:
    return replace(f"bank/{name}", old, new, 1)


def delete(name: str) -> Change:
    return lambda: Path(name).unlink()


TOML = 'nodes = "accounts_*.csv"\nedges = ["tx_1.csv", "tx_2.csv"]\n[columns]\nid = "account"\n'
BY_TOML = f"train bank {RULES.replace('--id account ', '')} {END}"


def wrong(line: str, words: str, remedy: str = GOOD, **changes: Change) -> Mistake:
    """A mistake whose remedy is the good command unless another one is given."""
    return Mistake(line, words, remedy, **changes)


MISTAKES = [
    # Files.
    wrong(instead("accounts_*", "acounts_*"), "no file matches this pattern, given for nodes; did you mean"),
    wrong(instead("tx_*.csv", "tx_3.csv"), "no such file; did you mean 'tx_", instead("tx_*", "tx_1")),
    wrong(
        f"train bank/accounts_1.csv {RULES} {END}",
        "give the edges with --edges",
        f"train bank/accounts_1.csv --edges bank/tx_1.csv {RULES} --unknown-ids drop {END}",
    ),
    wrong(
        f"train 'bank/accounts_*.csv' --edges bank/tx_1.csv bank/tx_2.csv {RULES} {END}",
        "quote a pattern, as --edges 'tx_*.csv', or give --edges once for each file",
        f"train 'bank/accounts_*.csv' --edges bank/tx_1.csv --edges bank/tx_2.csv {RULES} {END}",
    ),
    wrong(
        instead("'bank/tx_*.csv'", "bank/tx_1.csv --edges 'bank/tx_*.csv'"),
        "tx_1.csv: given twice for edges; give each file once",
    ),
    wrong(instead("'bank/tx_*.csv'", "more"), "no table in this folder, given for edges"),
    wrong(f"train bank {RULES} {END}", "give the table of nodes as DATA, and the edges with --edges"),
    wrong(
        GOOD,
        "no column 'payee', which bank/tx_1.csv has, and has 'paye', which bank/tx_1.csv has not",
        before=change("tx_2.csv", "payee", "paye"),
        correct=change("tx_2.csv", "paye;", "payee;"),
    ),
    wrong(
        GOOD,
        "no column 'amount', which bank/tx_1.csv has, and has 'note', which bank/tx_1.csv has not; name the",
        before=change("tx_2.csv", "amount", "note"),
        correct=change("tx_2.csv", "note", "amount"),
    ),
    wrong(f"{GOOD} --delimiter ,", "holds ';'; leave out --delimiter: each file is then read by its own"),
    wrong(
        GOOD,
        "line 1 is one column with delimiter ',', and holds ';' and '|'; give --delimiter ';'",
        instead("'bank/tx_*.csv'", "bank/tx_2.csv --delimiter ';'"),
        before=all_of(change("tx_2.csv", "amount", "amo|unt"), delete("bank/tx_1.csv")),
    ),
    wrong(
        BY_TOML,
        "edges=[1]: expected the name of a file, or a list of them",
        BY_TOML,
        before=write("bank/graph.toml", TOML.replace('["tx_1.csv", "tx_2.csv"]', "[1]")),
        correct=write("bank/graph.toml", TOML),
    ),
    wrong(
        BY_TOML,
        "unknown key 'date'; did you mean 'dates'?",
        BY_TOML,
        before=write("bank/graph.toml", TOML + 'date.opened = "2000-01-01"\n'),
        correct=write("bank/graph.toml", TOML + "dates.opened = 2000-01-01\n"),
    ),
    # Names of columns.
    wrong(without("--id account"), "no column 'id'; name yours with --id"),
    wrong(instead("--id account", "--id acount"), "did you mean 'account'?"),
    wrong(instead("--source payer", "--source player"), "did you mean 'payer'?"),
    wrong(
        instead("--percent share", "--percent shares"), "no column 'shares', given as percent; did you mean"
    ),
    wrong(
        instead("--boolean active", "--boolean activ"), "no column 'activ', given as boolean; did you mean"
    ),
    wrong(
        instead("--date opened=", "--date opend="), "no column 'opend', given as date; did you mean 'opened'?"
    ),
    wrong(instead("--date-format born=", "--date-format bron="), "which is no date; declare it"),
    wrong(f"{GOOD} --cycles openend=month", "which is no date", f"{GOOD} --cycles opened=month"),
    # Cells.
    wrong(without("--decimal , --thousands ."), "such numbers are read with --decimal , --thousands ."),
    wrong(without("--thousands ."), "such numbers are read with --decimal , --thousands ."),
    wrong(without("--percent share"), "percentages are read with --percent share"),
    wrong(without("--boolean active"), "booleans are read with --boolean active"),
    wrong(without("--date opened=2000-01-01"), "dates are read with --date opened=2000-01-01"),
    wrong(
        without("--date born=1900-01-01 --date-format born=%d.%m.%Y"),
        "dates are read with --date born=2000-01-01 --date-format born=%d.%m.%Y",
    ),
    wrong(without("--date-format born=%d.%m.%Y"), "say how dates are written (--date-format born=%d.%m.%Y)"),
    wrong(
        GOOD,
        "'maybe' is not true, false, yes, no, 1 or 0; correct it, or list such values (--categorical",
        instead("--boolean active", "--categorical 'active=yes|no|maybe'"),
        before=change("accounts_2.csv", "yes", "maybe"),
    ),
    wrong(
        GOOD,
        "line 2, column 'balance': empty; expected a number; fill empty cells (--fill balance=0)",
        f"{GOOD} --fill balance=0",
        before=change("accounts_2.csv", "4.012,5", ""),
    ),
    wrong(
        GOOD,
        "'?' is not a number; correct it, fill it (--missing '?' --fill share=0)",
        f"{GOOD} --missing '?' --fill share=0",
        before=change("accounts_2.csv", "12%", "?"),
    ),
    # Values of flags.
    wrong(instead("--decimal ,", "--decimal ."), "decimal and thousands are both '.'"),
    wrong(instead("--decimal ,", "--decimal comma"), "expected one of '.', ',', such as a comma"),
    wrong(instead("--thousands .", "--thousands ;"), "thousands=';': expected one of '.', ','"),
    wrong(instead("opened=2000-01-01", "opened=1.1.2000"), "expected the day from which days are counted"),
    wrong(instead("--date opened=2000-01-01", "--date opened"), "as COL=2000-01-01"),
    wrong(instead("born=%d.%m.%Y", "born=DD.MM"), "expected day, month and year, as %d.%m.%Y"),
    wrong(f"{GOOD} --cycles opened=weekdays", "did you mean 'weekday'?", f"{GOOD} --cycles opened=weekday"),
    wrong(f"{GOOD} --cycles opened", "as COL=weekday|month", f"{GOOD} --cycles 'opened=weekday|month'"),
    wrong(f"{GOOD} --looked-up class", "did you mean 'classes'?", f"{GOOD} --looked-up classes"),
    wrong(f"{GOOD} --ignore opened", "is given as ignore and as date; give it once"),
    wrong(f"{GOOD} --boolean opened", "is given as boolean and as date; give it once"),
    wrong(instead("--classes ok,bad", "--classes ok,badd"), "did you mean 'badd'?"),
    wrong(
        instead("--hash sector=4", "--categorical sector=farm,shop"),
        "'farm' is not its one value, 'farm,shop'",
        instead("--hash sector=4", "--categorical 'sector=farm|shop'"),
    ),
    # Other commands.
    wrong(
        f"check {DATA} --label frauds",
        "1 problem stops training; see above, then run check again",
        f"check {DATA} --label fraud",
    ),
    wrong(
        f"check {DATA} --label fraud --out new.txt",
        "expected a name that ends in .toml, such as graph.toml",
        f"check {DATA} --label fraud --out new.toml",
    ),
    wrong(
        f"check {DATA} --label fraud --out new/graph.toml",
        "no folder new; create it first",
        f"check {DATA} --label fraud --out new.toml",
    ),
    wrong(
        f"plan {DATA} {RULES.replace('--boolean active ', '')} --epsilon 4",
        "booleans are read with --boolean active",
        f"plan {DATA} {RULES} --epsilon 4",
    ),
    wrong(
        "predict run 'bank/accounts_*.csv' --edges 'bank/ty_*.csv' --out p.csv",
        "no file matches this pattern, given for edges",
        "predict run 'bank/accounts_*.csv' --edges 'bank/tx_*.csv' --out p.csv",
    ),
    wrong(
        "predict run new.csv --edges 'bank/tx_*.csv' --new --out p.csv",
        "line 2, column 'active': 'perhaps' is not true, false, yes, no, 1 or 0; correct it (a run keeps",
        "predict run new.csv --edges 'bank/tx_*.csv' --new --out p.csv",
        before=write("new.csv", lines([list(HEAD), ["B1", "1,5", "3%", "perhaps", *account(3)[4:]]], ";")),
        correct=write("new.csv", lines([list(HEAD), ["B1", "1,5", "3%", "Yes", *account(3)[4:]]], ";")),
    ),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank's tables in two files each, and a run on them."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "bank").mkdir()
    (folder / "more").mkdir()
    rows = [account(n) for n in range(COUNT)]
    for number, part in enumerate((rows[:12], rows[12:]), start=1):
        text = lines([list(HEAD), *part], ";")
        (folder / "bank" / f"accounts_{number}.csv").write_text(text)
    (folder / "bank" / "tx_1.csv").write_text(lines([["payer", "payee", "amount"], *LINKS[:10]], ","))
    swapped = [row[::-1] for row in LINKS[10:]]
    (folder / "bank" / "tx_2.csv").write_text(lines([["amount", "payee", "payer"], *swapped], ";"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = f"train {DATA} {RULES} --epsilon 4 --steps 1 --hidden 4 --out run --quiet --device cpu"
        assert main(shlex.split(words)) == 0
    return folder


def test_there_are_thirty() -> None:
    assert len({(mistake.line, mistake.before) for mistake in MISTAKES}) >= 30


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.words)
@pytest.mark.usefixtures("own_folder")
def test_a_mistake_and_its_remedy(mistake: Mistake, world: Path, run: Run) -> None:
    follow(mistake, run, world, Path())


def test_commands_read_the_same_tables(
    world: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(world, tmp_path / "world")
    monkeypatch.chdir(tmp_path / "world")
    for line in (
        f"compare {DATA} {RULES} --epsilon 4 --steps 1 --out five --device cpu",
        f"report run {DATA}",
        f"predict run {DATA} --out p.csv",
        f"train {DATA} --resume run",
    ):
        code, _, err = run(*shlex.split(line))
        assert code == 0, (line, err)
    assert [row.partition(",")[0] for row in Path("p.csv").read_text().split()[1:]] == [
        f"A{n}" for n in range(COUNT)
    ]
