"""Runs with spoilt files, for benchmarks/fuzz.py."""

from __future__ import annotations

import json
import math
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

from fuzz_place import TEXTS, Payload, Place, spoilt


def odd_value(rng: random.Random) -> Any:
    """A JSON value that is probably out of place."""
    numbers = [0, -1, 1, 2, 7, 10**9, 10**12, 10**30, -(10**30), 0.5, 1e300, 1e-300, math.nan, math.inf]
    texts = ["", "a", "x" * 1000, "inf", "cpu", "\0", "\ud800"]
    return rng.choice([None, True, False, *numbers, *texts, [], {}, [1], {"a": 1}, [[[[]]]]])


def respelt(rng: random.Random, value: Any) -> Any:
    """A JSON value with one part of it changed, taken away or added."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        changed = dict(value)
        how = rng.randrange(5)
        if how == 0:
            del changed[key]
        elif how == 1:
            changed[rng.choice(TEXTS)] = odd_value(rng)
        else:
            changed[key] = respelt(rng, value[key])
        return changed
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], respelt(rng, value[at]), *value[at + 1 :]]
    return odd_value(rng)


def run_folder(rng: random.Random, place: Place, box: Path) -> list[str]:
    """A run, finished or not, or its release, with one of its files spoilt, gone, or another's."""
    begun = rng.random() < 0.5
    folder = box / "r"
    shutil.copytree(place.root / ("begun" if begun else "done"), folder)
    file = rng.choice(sorted(each for each in folder.rglob("*") if each.is_file() and each.stat().st_size))
    # A release is a run of its own, and the run that it was made from does not read it.
    run = str(file.parent.relative_to(box))
    how = rng.random()
    if how < 0.08:
        file.unlink()
    elif how < 0.16:
        file.write_bytes(pickle.dumps(Payload(str(place.root / "the-payload-ran"))))
    elif how < 0.22:
        shutil.copy(place.root / ("done" if begun else "begun") / "run.json", file)
    elif file.suffix == ".json" and how < 0.7:
        changed = respelt(rng, json.loads(file.read_text()))
        if isinstance(changed, dict) and "sum" in changed and rng.random() < 0.7:
            changed = _resummed(changed)
        file.write_text(json.dumps(changed))
    elif file.name == "ledger.jsonl" and how < 0.6:
        file.write_bytes(_other_lines(rng, file.read_bytes()))
    elif file.suffix == ".safetensors" and how < 0.6:
        _other_tensors(rng, file)
    else:
        file.write_bytes(spoilt(rng, file.read_bytes()))
    data = str(place.root / "graph.npz")
    if begun:
        return ["train", data, "--resume", "r", "--quiet", "--device", "cpu"]
    return rng.choice(
        [
            ["predict", run, data, "--out", "c.csv", "--device", "cpu"],
            ["report", run, "--out", "page.html"],
            ["report", run, data, "--out", "page.html", "--json"],
            ["train", data, "--resume", run, "--device", "cpu"],
        ]
    )


def _resummed(about: dict[str, Any]) -> dict[str, Any]:
    """With the checksum of what is there now: somebody who edits it with care."""
    from hushgraph.runs.about import find_checksum

    rest = {key: value for key, value in about.items() if key != "sum"}
    return {**rest, "sum": find_checksum(rest)}


def _other_lines(rng: random.Random, content: bytes) -> bytes:
    """A ledger with other lines, all of them with the right checksums."""
    from hushgraph.privacy import ledger as ledger_file

    entries = [json.loads(line) for line in content.splitlines()]
    at = rng.randrange(len(entries))
    entries[at] = respelt(rng, entries[at])
    lines, last = b"", ""
    for entry in entries:
        if isinstance(entry, dict):
            entry.pop("sum", None)
            try:
                line, last = ledger_file.write_line(entry, after=last)
            except ValueError:
                line = b"NaN\n"
            lines += line
        else:
            lines += json.dumps(entry).encode() + b"\n"
    return lines


def _other_tensors(rng: random.Random, file: Path) -> None:
    """Other tensors, or other texts beside them, with the right checksum."""
    import torch

    from hushgraph._files import read_tensors, write_tensors

    tensors, about = read_tensors(file)
    name = rng.choice(sorted(tensors))
    how = rng.randrange(8)
    if how == 0:
        del tensors[name]
    elif how == 1:
        tensors[rng.choice(["more", "model.more", "optimizer.x.y", "optimizer.0.exp_avg", "a."])] = (
            torch.zeros(2)
        )
    elif how == 2:
        tensors[name] = tensors[name].to(rng.choice([torch.int64, torch.float16, torch.bool, torch.float64]))
    elif how == 3:
        tensors[name] = torch.full_like(tensors[name], rng.choice([float("nan"), float("inf"), 3e38]))
    elif how == 4:
        tensors[name] = torch.zeros(rng.choice([(0,), (1,), (1, 1), (7, 7), ()]))
    elif "about" in about:
        about["about"] = json.dumps(respelt(rng, json.loads(about["about"])))
    write_tensors(file, tensors, about)
