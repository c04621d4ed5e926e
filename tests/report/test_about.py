"""What only people know: read from TOML, refused in one line, blank where it is not given."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushgraph.errors import InputError
from hushgraph.report.about import FIELDS, read_about


def test_what_is_given_is_read_and_the_rest_is_blank(tmp_path: Path) -> None:
    file = tmp_path / "about.toml"
    file.write_text('purpose = "plan\\n  buses"\nowner = "Ana, ana@example.org"\ndate = 2026-03-01\n')
    about = read_about(file)
    assert list(about) == list(FIELDS)
    assert (about["purpose"], about["owner"]) == ("plan buses", "Ana, ana@example.org")
    assert about["date"] == "2026-03-01"
    assert [key for key, value in about.items() if value is None] == [
        "recipients",
        "retention",
        "unit_of_privacy",
        "data",
        "approved_by",
    ]
    assert set(read_about(None).values()) == {None}


@pytest.mark.parametrize("date", ['"1 March"', "2026-03-01", "2026-03-01T10:00:00Z"])
def test_a_date_is_text_or_a_date(tmp_path: Path, date: str) -> None:
    (tmp_path / "about.toml").write_text(f"date = {date}")
    assert read_about(tmp_path / "about.toml")["date"] in ("1 March", "2026-03-01")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('purposes = "x"', "unknown key 'purposes'; did you mean 'purpose'?"),
        ('Retention = "x"', "unknown key 'Retention'; did you mean 'retention'?"),
        ('zebra = "x"', "unknown key 'zebra'; expected purpose, owner, recipients"),
        ("purpose = 3", "purpose=3: expected a string that is not empty"),
        ('purpose = " "', "purpose=' ': expected a string"),
        ('owner = ["a"]', "owner=['a']: expected a string"),
        ("owner = 2026-03-01", "owner=datetime.date(2026, 3, 1): expected a string"),
        ("date = 12", "date=12: expected a string that is not empty, or a date"),
        ("[about]\npurpose = 'x'", "unknown key 'about'"),
        ("purpose = ", "not TOML"),
        ("a = 1\nb = 2", "unknown key 'a'; expected purpose, owner, recipients, retention, unit_of_privacy"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "about.toml").write_text(content)
    with pytest.raises(InputError) as refused:
        read_about(tmp_path / "about.toml")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(f"about={tmp_path / 'about.toml'}: ")


def test_all_offenders_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "about.toml").write_text('ownr = "x"\npurpose = 3')
    with pytest.raises(InputError, match=r"did you mean 'owner'\?; purpose=3"):
        read_about(tmp_path / "about.toml")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read \(No such file"):
        read_about(tmp_path / "none.toml")
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory"):
        read_about(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not TOML"):
        read_about(tmp_path / "bytes.toml")
