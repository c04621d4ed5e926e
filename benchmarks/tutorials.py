"""Runs the commands of the tutorials with their default settings; draws their pictures and fills in figures.

    python benchmarks/tutorials.py               run docs/tutorials, into records/tutorials.jsonl, then draw
    python benchmarks/tutorials.py social         one page alone; the records of the others are kept
    python benchmarks/tutorials.py --draw         pictures and tables from the records alone

A record is a page: what its run released on validation and test rows, and what `compare` printed. The page on
fraud shows records/fraud_table.jsonl instead of a comparison, which trains on whole neighbourhoods for long.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import runpy
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from hushgraph.cli.app import main as run_command
from hushgraph.comparison.figure import draw_comparison
from hushgraph.comparison.result import Comparison
from hushgraph.figures.names import format_figure, name_figure
from hushgraph.plots import canvas

ROOT = Path(__file__).parent.parent
RECORDS = Path(__file__).parent / "records"
PAGES, PICTURES = ROOT / "docs" / "tutorials", ROOT / "docs" / "assets" / "tutorials"
NAMES = ("fraud", "hospital", "social", "views")
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BIN_WIDTH = 0.5


def run_page(name: str) -> dict[str, Any]:
    """Run what a page says, in an empty folder; return what it released."""
    record: dict[str, Any] = {"page": name}
    namespace: dict[str, Any] = {"__name__": "tutorial"}
    with tempfile.TemporaryDirectory() as home, contextlib.chdir(home):
        for language, text in BLOCK.findall((PAGES / f"{name}.md").read_text(encoding="utf-8")):
            if language == "python":
                exec(compile(text, name, "exec"), namespace)
                continue
            for line in text.splitlines():
                record |= run_line(shlex.split(line.removeprefix("$ ")), name)
    return record


def run_line(words: list[str], page: str) -> dict[str, Any]:
    """Run one command; return what it adds to the record."""
    if words[0] == "python":
        sys.argv = words[1:]
        runpy.run_path(str(ROOT / words[1]), run_name="__main__")
        return {}
    command = words[1]
    if command not in ("check", "train", "compare") or (command, page) == ("compare", "fraud"):
        return {}
    with contextlib.redirect_stdout(io.StringIO()):
        code = run_command(words[1:])
    if code != 0:
        raise RuntimeError(shlex.join(words))
    if command == "check":
        return {}
    out = Path(words[words.index("--out") + 1])
    if command == "compare":
        return {"comparison": json.loads((out / "comparison.json").read_text())}
    released = json.loads((out / "release" / "figures.json").read_text())
    return {"command": shlex.join(words), "figures": released["figures"], "tables": released["tables"]}


def draw(records: Mapping[str, dict[str, Any]]) -> None:
    """Draw the pictures and fill in the pages."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, record in records.items():
        fill(name, f"figures of {name}", write_figures(record))
        if "comparison" in record:
            compared = Comparison.from_json(json.dumps(record["comparison"]))
            note = "Filled bars: the guarantee holds. " + " ".join(compared.notices)
            title = f"Five models: {name_figure(compared.figure)} on the test split"
            draw_comparison(compared.entries, PICTURES / f"{name}.svg", title=title, note=note)
            fill(name, f"help of {name}", write_verdict(compared))
    if "social" in records:
        draw_labels(records["social"], PICTURES / "social-genres.svg")
    if "fraud" in records:
        draw_scores(records["fraud"], PICTURES / "fraud-scores.svg")
    trials = [json.loads(line) for line in (RECORDS / "fraud_table.jsonl").read_text().splitlines()]
    fill("fraud", "fraud_table: from benchmarks/records/fraud_table.jsonl", write_trials(trials))
    draw_trials(trials, PICTURES / "fraud.svg")


def write_verdict(compared: Comparison) -> str:
    """What a comparison says of the graph, in a sentence or two."""
    rows = {row.name: row for row in compared.entries}
    tests = {name: rows[name].test for name in ("DP-Billboard", "DP-MLP", "GNN", "MLP")}
    words = ", ".join(
        f"{name} {'hidden by noise' if test is None else format_figure(compared.figure, test)}"
        for name, test in tests.items()
    )
    said = [f"Of this run, `compare` said: {notice}." for notice in compared.notices]
    verdict = (
        " ".join(said) or "`compare` printed no notice: the graph helps, beyond the noise of the figures."
    )
    return f"Test {name_figure(compared.figure)}: {words}. {verdict}"


def fill(page: str, mark: str, text: str) -> None:
    """Replace what stands between a mark and the end of its part."""
    path = PAGES / f"{page}.md"
    before = path.read_text(encoding="utf-8")
    begin = f"<!-- {mark} -->\n"
    head, found, rest = before.partition(begin)
    if found:
        path.write_text(
            f"{head}{begin}\n{text}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}", encoding="utf-8"
        )


def write_figures(record: Mapping[str, Any]) -> str:
    """A table of the figures of a run, without those of single classes."""
    shown = [each for each in record["figures"] if each["class"] is None and each["group"] is None]
    names = list(dict.fromkeys(each["figure"] for each in shown))
    values = {(each["figure"], each["split"]): _show(each) for each in shown}
    lines = ["| in one run | validation | test |", "|---|---|---|"]
    for name in names:
        cells = [values.get((name, split), "") for split in ("val", "test")]
        lines.append(f"| {name_figure(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _show(figure: Mapping[str, Any]) -> str:
    if figure["value"] is None:
        return "too few rows to tell from noise"
    low, high = (format_figure(figure["figure"], end) for end in figure["noise"])
    return f"{format_figure(figure['figure'], figure['value'])} [{low}, {high}]"


def _means(trials: list[dict[str, Any]]) -> dict[tuple[str, bool], dict[str, float]]:
    """What runs reach on average, by what they read and whether they are private."""
    found: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for trial in trials:
        found.setdefault((trial["reads"], trial["epsilon"] is not None), []).append(trial)
    return {
        key: {
            name: mean(each[name] for each in group)
            for name in ("exact_auc", "covered_auc")
            if group[0][name]
        }
        for key, group in found.items()
    }


def write_trials(trials: list[dict[str, Any]]) -> str:
    """Means of the runs on the tables of the bank."""
    means = _means(trials)
    lines = [
        "| ROC-AUC, means of three runs | no noise, exact | epsilon 4, exact | epsilon 4, published |",
        "|---|---|---|---|",
    ]
    for reads in dict.fromkeys(reads for reads, _ in means):
        shown = means[reads, False]["exact_auc"], *means[reads, True].values()
        lines.append(f"| {reads} | {' | '.join(f'{value:.3f}' for value in shown)} |")
    return "\n".join(lines)


def draw_trials(trials: list[dict[str, Any]], path: Path) -> None:
    """Bars of ROC-AUC by what a run reads, with and without noise."""
    means = _means(trials)
    with canvas.drawing():
        figure, (axes,) = canvas.new_figure(rows=1, columns=1, panel=(7.2, 2.9))
        ticks: list[str] = []
        for reads in dict.fromkeys(reads for reads, _ in means):
            model = "MLP" if "MLP" in reads else "Billboard"
            colour = canvas.model_colours([model])[model]
            for is_private in (False, True):
                value = means[reads, is_private]["exact_auc"]
                face = colour if is_private else canvas.PAPER
                axes.bar(len(ticks), value, 0.66, facecolor=face, edgecolor=colour, linewidth=1.4)
                axes.annotate(
                    f"{value:.3f}", (len(ticks), value), (0, 3), textcoords="offset points", ha="center"
                )
                words = reads.replace(": ", ":\n").replace(", ", ",\n").replace(" and ", "\nand ")
                ticks.append(
                    f"{'ε = 4' if is_private else 'no noise'}" + (f"\n{words}" if is_private else "")
                )
        axes.set_xticks(range(len(ticks)), ticks, fontsize=8)
        axes.set_ylim(0.5, 1.02)
        title = "Fraud at a bank: ROC-AUC on the test split, by what is read"
        notes = ["Means of three runs, compared with the labels. Chance is 0.5. Hollow bars: no noise."]
        canvas.finish(figure, title=title, notes=notes, legend={})
        canvas.save(figure, path, title=title)


def draw_scores(record: Mapping[str, Any], path: Path) -> None:
    """The released counts of scores and labels on the test split."""
    counts = record["tables"]["test"][0]
    with canvas.drawing():
        figure, panels = canvas.new_figure(rows=1, columns=2, panel=(3.6, 2.4))
        for axes, place, label in zip(panels, (0, 1), ("honest", "fraudulent"), strict=True):
            values = [row[place] for row in counts]
            middle = [BIN_WIDTH * (number - len(values) / 2 + 0.5) for number in range(len(values))]
            colour = canvas.model_colours(["Billboard" if place == 0 else "MLP"])
            axes.bar(middle, values, 0.9 * BIN_WIDTH, color=next(iter(colour.values())))
            axes.set_title(f"{label} accounts")
            axes.set_xlabel("score (log-odds)")
        title = "Noisy counts of the test split that the run released"
        notes = ["Bins are public. A count may be below 0: noise is added to empty bins too."]
        canvas.finish(figure, title=title, notes=notes, legend={})
        canvas.save(figure, path, title=title)


def draw_labels(record: Mapping[str, Any], path: Path) -> None:
    """Which share of the test split has each label, with the interval of its noise."""
    words = shlex.split(record["command"])
    names = words[words.index("--classes") + 1].split(",")
    shown = [each for each in record["figures"] if (each["figure"], each["split"]) == ("share", "test")]
    with canvas.drawing():
        figure, (axes,) = canvas.new_figure(rows=1, columns=1, panel=(7.2, 2.4))
        colour = canvas.model_colours(["Billboard"])["Billboard"]
        for x, each in enumerate(shown):
            low, high = (100 * end for end in each["noise"])
            axes.bar(x, 100 * each["value"], 0.6, color=colour)
            axes.plot([x, x], [low, high], color=canvas.INK, linewidth=1.2)
        axes.set_xticks(range(len(shown)), [names[each["class"]] for each in shown])
        axes.set_ylabel("users who like it (%)")
        title = "Genres on the test split, from noisy counts"
        canvas.finish(figure, title=title, notes=["Lines: what noise may have moved."], legend={})
        canvas.save(figure, path, title=title)


def main() -> None:
    """Run pages, or draw from the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pages", nargs="*", default=list(NAMES))
    parser.add_argument("--draw", action="store_true")
    flags = parser.parse_args()
    path = RECORDS / "tutorials.jsonl"
    read: Callable[[str], Any] = json.loads
    lines = path.read_text().splitlines() if path.exists() else []
    records = {record["page"]: record for record in map(read, lines)}
    for name in () if flags.draw else flags.pages:
        records[name] = run_page(name)
        ordered = [records[each] for each in NAMES if each in records]
        path.write_text("".join(json.dumps(record) + "\n" for record in ordered))
        print(name, "done", flush=True)
    draw(records)


if __name__ == "__main__":
    main()
