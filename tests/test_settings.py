"""One table of settings: signatures, help, files for `--config` and the docs have every entry of it."""

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

import hushgraph as hg
from hushgraph.cli.app import main
from hushgraph.cli.options import read_settings, with_flags
from hushgraph.errors import InputError
from hushgraph.graph.columns import Columns
from hushgraph.settings import (
    SECTIONS,
    TABLE,
    Setting,
    Settings,
    complete,
    list_settings,
    take_columns,
    with_settings,
)

ROOT = Path(__file__).parent.parent


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("write_settings", ROOT / "scripts" / "write_settings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OF_NUMBERS = {"bounds", "unit", "engine", "memory"}
OF_CLASSES = {"task", "num_classes", "positive", "rare", "class_weight", "classes", "engine", "memory"}


@pytest.mark.parametrize(
    ("function", "without"),
    [(hg.train, set()), (hg.NodeClassifier, OF_NUMBERS), (hg.NodeRegressor, OF_CLASSES)],
)
def test_every_setting_is_an_argument_with_its_default(
    function: Callable[..., Any], without: set[str]
) -> None:
    parameters = inspect.signature(function).parameters
    assert TABLE.keys() - parameters.keys() == without
    for name, entry in TABLE.items():
        if name in without:
            continue
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == entry.default
        assert parameters[name].annotation == entry.type


def test_prepare_takes_what_a_run_is_and_compare_what_all_runs_share() -> None:
    assert inspect.signature(hg.prepare).parameters.keys() == {"data", *Settings.__annotations__}
    compared = inspect.signature(hg.compare).parameters.keys()
    assert TABLE.keys() - compared == {
        "private",
        "sigma_over_clip",
        "paper_noise_multiplier",
        "method",
        "setting",
        "engine",
        "memory",
        "progress",
    }


@pytest.mark.parametrize("function", [hg.train, hg.prepare, hg.compare, hg.NodeClassifier.__init__])
def test_every_argument_is_explained(function: Callable[..., Any]) -> None:
    text = inspect.getdoc(function) or ""
    for name in inspect.signature(function).parameters.keys() & TABLE.keys():
        assert f"    {name}: {TABLE[name].meaning}" in text


@pytest.mark.parametrize("command", ["train", "plan", "compare", "check", "audit"])
def test_every_flag_of_a_command_is_in_its_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    entries = [entry for entry in TABLE.values() if command in entry.commands]
    assert entries
    for entry in entries:
        assert f" --{entry.key} " in text
        assert entry.help in text.replace("DATA- MODEL", "DATA-MODEL")


def test_every_flag_of_train_is_a_key_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = {bool: "true", int: "3", float: "0.5"}
    lines = {}
    for entry in TABLE.values():
        if "train" in entry.commands:
            value = values.get(entry.type, values.get((getattr(entry.type, "__args__", None) or [None])[0]))
            text = f'"{entry.values[0]}"' if entry.values else (value or '"some"')
            lines[entry.key] = f"[{text}]" if entry.repeats else text
    file = tmp_path / "run.toml"
    file.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    assert main(["train", "demo", "--config", str(file), "--print-config"]) == 0
    printed = dict(line.split(" = ", 1) for line in capsys.readouterr().out.splitlines()[1:])
    assert printed.keys() >= lines.keys()


def test_the_page_of_the_command_line_has_every_setting() -> None:
    script = load_script()
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.insert_settings(page) == page, "run python scripts/write_settings.py"
    for name in TABLE:
        assert f"| `{name}` |" in page


def test_entries_are_consistent() -> None:
    flags = [entry.key for entry in TABLE.values()]
    assert len(set(flags)) == len(flags)
    for entry in TABLE.values():
        assert entry.section in SECTIONS
        assert entry.help.endswith((".", "]"))
        assert not entry.values or entry.default is None or entry.default in entry.values
        assert entry.column is None or hasattr(Columns(), entry.column)


def test_what_is_left_out_has_its_default() -> None:
    full = complete({"epsilon": 4})
    assert full == {name: entry.default for name, entry in TABLE.items() if name in full} | {"epsilon": 4.0}
    with pytest.raises(InputError, match="epsilonn: train has no such argument; did you mean epsilon"):
        complete({"epsilonn": 4})


def test_a_name_that_meant_two_things_is_refused_with_both() -> None:
    both = r"noise_multiplier=2.5: .* paper_noise_multiplier=2.5 for .* sigma_over_clip=2.5 for sigma / C"
    for call in (hg.train, hg.prepare, hg.compare):
        with pytest.raises(InputError, match=both):
            call("demo", noise_multiplier=2.5)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=both):
        hg.NodeClassifier(noise_multiplier=2.5)  # type: ignore[call-arg]


def test_noise_is_given_in_one_of_two_units() -> None:
    data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
    shared: Settings = {"max_readers": 3, "max_reads": 3, "steps": 5, "batch_size": 50}
    paper = hg.prepare(data, paper_noise_multiplier=1.5, **shared).plan
    ours = hg.prepare(data, sigma_over_clip=1.5 * 2 * paper.changed_trees, **shared).plan
    assert ours == paper
    assert (ours.sigma_over_clip, ours.paper_noise_multiplier) == (12.0, 1.5)
    with pytest.raises(InputError, match="both say how much noise there is; leave one out"):
        hg.prepare(data, sigma_over_clip=12.0, paper_noise_multiplier=1.5, **shared)


def test_single_columns_join_those_given_together() -> None:
    assert take_columns(complete({})) is None
    assert take_columns(complete({"label": "school"})) == {"label": "school"}
    both = take_columns(complete({"split_column": "part", "columns": {"label": "school"}}))
    assert both == {"split": "part", "label": "school"}
    merged = take_columns(complete({"hashed": {"city": 16}, "columns": Columns(label="school")}))
    assert merged == Columns(label="school", hashed={"city": 16})


class MoreSettings(Settings, total=False):
    patience: Annotated[
        int | None, Setting(help="Steps to wait. [none]", section="Training", commands=("train",))
    ]


def test_a_new_entry_is_an_argument_and_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the table has to know it."""
    entry = list_settings(MoreSettings)["patience"]

    @with_settings(MoreSettings)
    def fit(**settings: Any) -> dict[str, Any]:
        return complete(settings, kind=MoreSettings)

    assert inspect.signature(fit).parameters["patience"].default is None
    assert "    patience: Steps to wait. [none]" in (inspect.getdoc(fit) or "")
    assert fit(patience=3)["patience"] == 3
    with pytest.raises(InputError, match="patience='3': expected a whole number"):
        fit(patience="3")
    monkeypatch.setitem(TABLE, "patience", entry)

    @with_flags("train")
    def command(**flags: Any) -> None:
        app_result.update(read_settings(flags))

    app_result: dict[str, Any] = {}
    app = typer.Typer()
    app.command()(command)
    app(["--patience", "7"], standalone_mode=False)
    assert app_result["patience"] == 7


LISTS = {entry.name: entry for entry in TABLE.values() if entry.metavar in ("A,B,...", "COL[,COL...]")}
VALUES = {entry.name: entry for entry in TABLE.values() if entry.metavar == "COL=A|B"}


@pytest.mark.parametrize("name", LISTS | VALUES)
def test_repeats_of_a_list_flag_add_up(name: str) -> None:
    entry = TABLE[name]
    assert entry.repeats
    assert entry.read is not None
    if name in LISTS:
        assert entry.read(["a,b", "c"]) == entry.read(["a", "b", "c"]) == ["a", "b", "c"]
    else:
        assert entry.read(["k=a|b", "l=d", "k=c"]) == {"k": ["a", "b", "c"], "l": ["d"]}


def test_the_list_flags_are_found() -> None:
    assert {"features", "ignore", "classes", "label", "missing", "percent", "booleans"} < LISTS.keys()
    assert VALUES.keys() == {"categorical", "group", "relation", "cycles"}
