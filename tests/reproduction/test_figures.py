"""Figures: what is drawn for which records, what every figure says, and what is refused."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hushgraph.errors import InputError, RunError
from hushgraph.plots import canvas
from hushgraph.reproduction import figures, spec
from hushgraph.reproduction.tables import Table, build_table

EPSILONS = (2.0, 4.0, 8.0)


def record(row: str = "DP-GCN", mode: str = "sound", **others: Any) -> dict[str, Any]:
    usual = {
        "experiment": "curves",
        "column": "ogbn-arxiv",
        "data": "ogbn-arxiv",
        "row": row,
        "mode": mode,
        "axes": {},
        "seed": 0,
        "test_accuracy": 0.5,
        "claimed_epsilon": 12.0 if mode == "as-published" else None,
        "epsilon_holds": 12.0 if mode == "sound" else None,
        "holds_reason": "none: percentiles of private gradients",
        "run": "r",
    }
    return usual | others


def curve(row: str, mode: str, start: float, *, seeds: int = 2, **others: Any) -> list[dict[str, Any]]:
    name = "claimed_epsilon" if mode == "as-published" else "epsilon_holds"
    return [
        record(row, mode, **{"axes": {"epsilon": e}, name: e, "seed": s}, test_accuracy=start + (e + s) / 100)
        | others
        for e in EPSILONS
        for s in range(seeds)
    ]


def against_epsilon() -> list[dict[str, Any]]:
    level = [record(row, "non-private", seed=s, test_accuracy=0.6) for row in ("GCN", "MLP") for s in (0, 1)]
    private = curve("DP-GCN", "sound", 0.4) + curve("DP-GCN", "as-published", 0.38)
    return level + private + curve("DP-MLP", "sound", 0.3)


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with canvas.drawing():
        yield


def tables(records: list[dict[str, Any]]) -> list[Table]:
    names = dict.fromkeys(one["experiment"] for one in records)
    return [
        build_table(spec.load(name), [one for one in records if one["experiment"] == name]) for name in names
    ]


def draw(records: list[dict[str, Any]], out: Path) -> list[Path]:
    return figures.draw(tables(records), out)


def build_figure(records: list[dict[str, Any]]) -> Any:
    return figures.build_figure(tables(records)[0])


def panels(records: list[dict[str, Any]]) -> list[Any]:
    return [axes for axes in build_figure(records).axes if axes.get_visible()]


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines()}


def words(records: list[dict[str, Any]]) -> str:
    figure = build_figure(records)
    return " ".join(text.get_text().replace("\n", " ") for text in figure.texts)


def test_one_svg_and_one_png_for_each_experiment(tmp_path: Path) -> None:
    records = against_epsilon() + [record(experiment="degree", axes={"max_readers": k}) for k in (0, 1, 2)]
    written = draw(records, tmp_path / "a" / "b")
    names = ["curves.svg", "curves.png", "degree.svg", "degree.png"]
    assert [file.name for file in written] == names
    assert sorted(names) == sorted(file.name for file in (tmp_path / "a" / "b").iterdir())
    assert written[1].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in written[0].read_bytes()


def test_the_same_records_give_the_same_files(tmp_path: Path) -> None:
    first, second = draw(against_epsilon(), tmp_path / "1"), draw(against_epsilon(), tmp_path / "2")
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]
    svg = first[0].read_text()
    assert "dc:date" not in svg
    # Text is text, not outlines of letters.
    assert ">DP-MLP, sound (ε holds)</text>" in svg


def test_matplotlib_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    def settings() -> dict[str, Any]:
        # To read the backend is to choose one.
        return {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}

    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    usual = draw([record()], tmp_path / "usual")
    matplotlib.rcParams["font.size"] = 31
    before = settings()
    mine = draw([record()], tmp_path / "mine")
    assert settings() == before
    assert [file.read_bytes() for file in mine] == [file.read_bytes() for file in usual]


def test_a_line_for_each_private_model_and_a_level_for_the_others() -> None:
    (axes,) = panels(against_epsilon())
    drawn = lines(axes)
    assert set(drawn) == {
        "GCN, no privacy",
        "MLP, no privacy",
        "DP-GCN, sound (ε holds)",
        "DP-GCN, as published (ε claimed by the paper)",
        "DP-MLP, sound (ε holds)",
    }
    sound = drawn["DP-GCN, sound (ε holds)"]
    assert list(sound.get_xdata()) == list(EPSILONS)
    assert list(sound.get_ydata()) == pytest.approx([42.5, 44.5, 48.5])
    assert drawn["GCN, no privacy"].get_linestyle() == ":"
    assert set(drawn["GCN, no privacy"].get_ydata()) == {60.0}
    # One band for each line with a spread; the levels have none here.
    assert len(axes.collections) == 3
    low, high = axes.collections[0].get_paths()[0].get_extents().intervaly
    assert high - low == pytest.approx(6 + 2 * math.sqrt(0.5))
    assert axes.get_xlabel() == "ε (sound: holds; as published: claimed by the paper)"


def test_epsilon_is_where_the_run_got_to_not_what_was_asked_for() -> None:
    records = [record(axes={"epsilon": e}, epsilon_holds=e + 0.5) for e in (1, 2, 3)]
    (axes,) = panels(records)
    assert list(axes.get_lines()[0].get_xdata()) == [1.5, 2.5, 3.5]


def test_a_private_model_without_an_epsilon_has_no_place() -> None:
    records = curve("DP-GCN", "sound", 0.4) + curve("DP-MLP", "sound", 0.3, epsilon_holds=None)
    (axes,) = panels(records)
    assert len(axes.get_lines()) == 1
    assert "Omitted because their ε is unknown: 3 of 6 settings." in words(records)
    with pytest.raises(InputError, match="records of curves: none has an epsilon"):
        panels(curve("DP-MLP", "sound", 0.3, epsilon_holds=None))


@pytest.mark.parametrize(
    ("name", "values", "scale"),
    [
        ("max_readers", (0, 1, 5, 30), "symlog"),
        ("batch_size", (2500, 40000), "log"),
        ("batch_size", (2500, 5000), "linear"),
    ],
)
def test_ablations(name: str, values: tuple[int, ...], scale: str) -> None:
    modes = (("GCN", "non-private"), ("DP-GCN", "sound"), ("DP-GCN", "as-published"))
    records = [record(row, mode, axes={name: v}) for row, mode in modes for v in values]
    (axes,) = panels(records)
    assert [list(line.get_xdata()) for line in axes.get_lines()] == [list(values)] * 3
    assert axes.get_xscale() == scale
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [f"{value:,}" for value in values]
    assert set(lines(axes)) == {
        "GCN, no privacy",
        "DP-GCN, sound (ε ≤ 12.00 holds)",
        "DP-GCN, as published (ε ≤ 12.00 claimed by the paper)",
    }


def test_two_axes_make_a_line_for_each_place_and_a_panel_for_each_mode() -> None:
    records = [
        one | {"axes": one["axes"] | {"max_readers": k}}
        for mode in ("sound", "as-published")
        for k in (0, 1, 7)
        for one in curve("DP-GCN", mode, (0.3 if mode == "sound" else 0.1) + k / 100)
    ]
    left, right = panels(records)
    assert left.get_title(loc="left") == "ogbn-arxiv: DP-GCN, sound"
    assert right.get_title(loc="left") == "ogbn-arxiv: DP-GCN, as published"
    assert list(lines(left)) == list(lines(right)) == ["K = 0", "K = 1", "K = 7"]
    assert left.get_ylim() == right.get_ylim()
    assert left.get_ylim()[0] < 12.5
    assert left.get_ylim()[1] > 45.5


def test_a_setting_looks_the_same_in_every_panel() -> None:
    records = [
        one | {"axes": one["axes"] | {"batch_size": size}}
        for mode in ("sound", "as-published")
        for size in (2500, 10000, 40000)
        for one in curve("DP-GCN", mode, 0.3)
    ]
    # Another order in one of the panels, as where its first setting lacks the first record.
    half = len(records) // 2
    left, right = panels(records[:half] + records[half:][::-1])
    assert list(lines(left)) == list(lines(right))
    for label, line in lines(left).items():
        other = lines(right)[label]
        assert (line.get_color(), line.get_marker()) == (other.get_color(), other.get_marker())


def test_published_numbers_are_drawn_beside_ours() -> None:
    where = {"experiment": "degree", "data": "ogbn_arxiv_hints"}
    records = [record(axes={"max_readers": k}, **where) for k in (0, 3, 30)]
    (axes,) = panels(records)
    star = lines(axes)["DP-GCN, published by the paper"]
    assert list(star.get_xdata()) == [3, 30]
    assert list(star.get_ydata()) == [62.413, 60.528]


def test_a_table_has_a_bar_for_each_model_and_mode() -> None:
    rows = (("GCN", "non-private"), ("DP-GCN", "as-published"), ("DP-GCN", "sound"))
    records = [
        record(row, mode, column=column, experiment="transductive", test_accuracy=accuracy)
        for column, accuracy in (("ogbn-arxiv", 0.6), ("reddit", 0.9))
        for row, mode in rows
    ]
    left, right = panels(records)
    assert [bar.get_width() for bar in left.patches] == [60.0] * 3
    assert [bar.get_width() for bar in right.patches] == [90.0] * 3
    labels = [tick.get_text() for tick in left.get_yticklabels()]
    assert labels == [
        "GCN (1-layer)\nno privacy",
        "DP-GCN (Adam)\nsound (ε ≤ 12.00 holds)",
        "DP-GCN (Adam)\nas published (ε ≤ 12.00 claimed by the paper)",
    ]
    # Ours was not published, so there are two.
    assert [line.get_xdata()[0] for line in left.get_lines()] == [67.758, 61.750]


def test_classes_by_frequency_and_the_accuracy_on_all() -> None:
    classes = {"count": [5, 20, 0, 10], "accuracy": [0.1, 0.9, None, 0.4]}
    others = {"count": [5, 20, 0, 10], "accuracy": [0.3, 0.7, None, 0.6]}
    records = [
        record("GCN", "non-private", experiment="class-wise", per_class=classes, test_accuracy=0.7),
        record("DP-GCN", experiment="class-wise", per_class=classes, seed=0),
        record("DP-GCN", experiment="class-wise", per_class=others, seed=1),
    ]
    (axes,) = panels(records)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "3", "0"]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([90, 40, 10, 80, 50, 20])
    assert [line.get_ydata()[0] for line in axes.get_lines()] == [70.0, 50.0]
    assert all(line.get_linestyle() == ":" for line in axes.get_lines())


def test_substitute_data_is_named() -> None:
    text = words([record(data="ogbn_arxiv_hints")])
    assert "Measured on ogbn_arxiv_hints, not ogbn-arxiv." in text
    row = record("DP-GCN", "as-published", experiment="transductive", data="ogbn_arxiv_hints")
    assert "Measured on ogbn_arxiv_hints, not ogbn-arxiv." in words([row])
    assert "Measured on" not in words([record()])
    # A part of a dataset is no substitute.
    own = record(experiment="inductive", column="reddit-disjoint", data="reddit")
    assert "Measured on" not in words([own])
    assert "Measured on generated, not reddit-disjoint." in words([own | {"data": "generated"}])


@pytest.mark.parametrize(
    ("holds", "sentence"),
    [
        ((None, None), "no ε is known to hold for these runs. One seed"),
        ((20.001, None), "no ε is known to hold for these runs. One seed"),
        ((20.001, 31.2), "ε ≤ 31.20 holds for these runs. One seed"),
    ],
)
def test_a_claim_is_called_one(holds: tuple[float | None, ...], sentence: str) -> None:
    records = [
        record(row, "as-published", epsilon_holds=epsilon)
        for row, epsilon in zip(("DP-GCN", "DP-MLP"), holds, strict=True)
    ]
    assert f"As published: ε is claimed by the paper; {sentence}" in words(records)
    assert "claimed" not in words([record()])


def test_seeds_are_counted() -> None:
    assert "One seed, so no spread." in words([record()])
    twice = [record(seed=0), record(seed=1, test_accuracy=0.7)]
    assert "Mean and standard deviation over 2 seeds." in words(twice)
    assert "over 1 to 2 seeds" in words([*twice, record("DP-MLP")])
    assert "reproducible, not private" in words([record()])
    assert "reproducible" not in words([record("GCN", "non-private")])


@pytest.mark.parametrize("records", [[], [record(test_accuracy=None)]])
def test_nothing_is_made_for_records_that_are_refused(records: list[Any], tmp_path: Path) -> None:
    with pytest.raises(InputError):
        draw(records, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(RunError, match="out: cannot be created"):
        draw([record()], tmp_path / "out")


def test_without_matplotlib_one_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=re.escape("pip install 'hushgraph[plots]'")) as caught:
        draw([record()], tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
