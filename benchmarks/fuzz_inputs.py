"""The inputs of benchmarks/fuzz.py: files and flags, and the commands that read them."""

from __future__ import annotations

import io
import json
import pickle
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fuzz_place import NUMBERS, TEXTS, Payload, Place, good_arrays, spoilt
from fuzz_runs import run_folder

SMALL = ["--steps", "1", "--hidden", "3", "--device", "cpu", "--quiet", "--paper-noise-multiplier", "1"]


def npz(rng: random.Random, place: Place, box: Path) -> list[str]:
    """An archive whose bytes, or whose arrays, are spoilt."""
    arrays = good_arrays()
    if rng.random() < 0.4:
        content = spoilt(rng, (place.root / "graph.npz").read_bytes())
    else:
        name = rng.choice(sorted(arrays))
        how, array = rng.randrange(8), arrays[name]
        if how == 0:
            del arrays[name]
        elif how == 1:
            arrays[name] = array.astype(
                rng.choice(["f2", "f8", "i1", "u8", "U3", "S2", "c8", "?", "M8[s]", "O"])
            )
        elif how == 2:
            arrays[name] = array.reshape(rng.choice([(-1,), (1, -1), (-1, 1), (1, 1, -1)]))
        elif how == 3:
            array = array.astype(np.float64 if name == "x" else np.int64)
            extreme = (
                [np.nan, np.inf, 1e38, -1e38, 1e300] if name == "x" else [-1, -2, 40, 2**31, 2**62, -(2**63)]
            )
            array.flat[rng.randrange(array.size)] = rng.choice(extreme)
            arrays[name] = array
        elif how == 4:
            arrays[name] = array[: rng.randrange(3)]
        elif how == 5:
            arrays[name] = np.array([Payload(str(place.root / "the-payload-ran"))], dtype=object)
        elif how == 6:
            arrays[rng.choice(["x_indptr", "x_shape", "", "../x"])] = np.arange(3)
        buffer = io.BytesIO()
        rng.choice([np.savez, np.savez_compressed])(buffer, **arrays)
        content = buffer.getvalue()
        if how == 7:
            content = _claiming(
                content, name, rng.choice(["(1000000000000,)", "(2, 9999999999)", "(-1,)", "()"])
            )
    (box / "g.npz").write_bytes(content)
    return ["train", "g.npz", *SMALL, "--out", "run"]


def _claiming(content: bytes, name: str, shape: str) -> bytes:
    """The archive with another shape in the header of one array."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for member in old.namelist():
            data = old.read(member)
            if member == f"{name}.npy":
                head, rest = data[:128].decode("latin1"), data[128:]
                begin = head.index("'shape': ") + 9
                head = head[:begin] + shape + head[head.index(")", begin) + 1 :].rstrip()
                data = head.ljust(127).encode("latin1") + b"\n" + rest
            new.writestr(member, data)
    return out.getvalue()


def pt(rng: random.Random, place: Place, box: Path) -> list[str]:
    """A torch file that is spoilt, holds other things, or would run code."""
    import torch

    how = rng.random()
    if how < 0.5:
        (box / "g.pt").write_bytes(spoilt(rng, (place.root / "graph.pt").read_bytes()))
    elif how < 0.6:
        payload = Payload(str(place.root / "the-payload-ran"))
        if rng.random() < 0.5:
            (box / "g.pt").write_bytes(pickle.dumps({"x": payload}))
        else:
            torch.save({"x": payload}, box / "g.pt")
    else:
        arrays = {name: torch.from_numpy(np.array(value)) for name, value in good_arrays().items()}
        name = rng.choice(sorted(arrays))
        others = [
            None,
            3,
            "text",
            [1, 2],
            torch.zeros(0),
            torch.zeros(2, 2, 2),
            torch.zeros(40, dtype=torch.bool),
        ]
        others += [torch.full((40,), 2**62), torch.full((40,), float("nan")), {"a": torch.zeros(1)}]
        others += [
            torch.zeros(1).expand(10**12),
            torch.zeros(3, dtype=torch.complex64),
            torch.eye(40).to_sparse(),
        ]
        arrays[name] = rng.choice(others)
        torch.save(arrays if rng.random() < 0.9 else rng.choice(others), box / "g.pt")
    return ["train", "g.pt", *SMALL, "--out", "run"]


def tables(rng: random.Random, place: Place, box: Path) -> list[str]:
    """Tables, or the file that names them, spoilt."""
    shutil.copytree(place.root / "tables", box / "t")
    kind = rng.choice(["csv", "parquet", "toml"])
    if kind == "parquet":
        (box / "t" / "graph.toml").write_text(
            (box / "t" / "graph.toml").read_text().replace(".csv", ".parquet")
        )
    name = "graph.toml" if kind == "toml" else f"{rng.choice(['nodes', 'edges'])}.{kind}"
    file = box / "t" / name
    file.write_bytes(spoilt(rng, file.read_bytes()))
    if kind == "csv" and rng.random() < 0.5:
        lines = (place.root / "tables" / name).read_text().split("\n")
        at = rng.randrange(len(lines))
        cells = lines[at].split(",")
        cells[rng.randrange(len(cells))] = rng.choice(NUMBERS + TEXTS).encode("utf-8", "replace").decode()
        lines[at] = ",".join(cells)
        file.write_text("\n".join(lines))
    return ["train", "t" if rng.random() < 0.7 else "t/graph.toml", *SMALL, "--out", "run"]


def config(rng: random.Random, place: Place, box: Path) -> list[str]:
    """A file for --config with values of the wrong kind, unknown keys, or spoilt bytes."""
    lines = [f'data = "{place.root / "graph.npz"}"', "epsilon = 4.0", "steps = 1", "hidden = 3"]
    flag = rng.choice([name for name, _ in place.flags["train"]]).lstrip("-")
    if flag not in ("data-root", "config", "steps", "out", "resume"):
        value = rng.choice([*(json.dumps(text) for text in TEXTS[:-1]), *NUMBERS, "true", "[1]", "{a = 1}"])
        lines.append(f"{flag} = {value}")
    content = ("\n".join(lines) + "\n").encode("utf-8", "replace")
    (box / "c.toml").write_bytes(spoilt(rng, content) if rng.random() < 0.3 else content)
    # On the command line, so that a spoilt number cannot ask for years of training.
    return ["train", "--config", "c.toml", "--steps", "1", "--quiet", "--device", "cpu", "--out", "run"]


def flags(rng: random.Random, place: Place, box: Path) -> list[str]:
    """A command with flags drawn from its own, with values of every kind."""
    others = ["plan", "predict", "report", "compare", "datasets", "reproduce", "audit"]
    command = rng.choice(["train", "train", "plan", *(name for name in others if name in place.flags)])
    data = str(place.root / "graph.npz")
    given = {
        "train": ["train", data, *SMALL, "--out", "run"],
        "plan": ["plan", "--train-nodes=99", "--batch-size=9", "--max-readers=2", "--epsilon=2", "--steps=3"],
        "audit": ["audit", "--epsilon", "2", "--steps", "1", "--trials", "3", "--batch-size", "2"],
        "predict": ["predict", str(place.root / "done"), data, "--out", "c.csv", "--device", "cpu"],
        "report": ["report", str(place.root / "done"), "--out", "page.html"],
        "compare": ["compare", data, "--epsilon", "2", "--steps", "1", "--device", "cpu"],
        "datasets": ["datasets"],
        "reproduce": ["reproduce", "degree", "--quick", "--dry-run"],
    }[command]
    # Where what is written goes, how long it takes and what is fetched from a network stay as they are.
    kept = {"--out", "--steps", "--resume", "--data-root", "--dry-run", "--quick", "--trials"}
    if rng.random() < 0.2:
        given = [word for word in given if rng.random() < 0.8 or word in (*kept, command)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        flag, takes = rng.choice(place.flags[command])
        if flag in kept and not (flag == "--steps" and command == "plan"):
            continue
        given.append(flag)
        if takes:
            given.append(rng.choice(NUMBERS + NUMBERS + TEXTS))
    if rng.random() < 0.05:
        given.insert(rng.randrange(len(given)), rng.choice(TEXTS))
    if command == "reproduce" and "--dry-run" not in given:
        given.append("--dry-run")
    if command == "compare" and "--steps" not in given[:6]:
        given += ["--steps", "1"]
    return given


KINDS: dict[str, Callable[[random.Random, Place, Path], list[str]]] = {
    "npz": npz,
    "pt": pt,
    "tables": tables,
    "config": config,
    "run folder": run_folder,
    "flags": flags,
}
