"""Good inputs of every kind for benchmarks/fuzz.py, and the odd words and numbers that spoil them."""

from __future__ import annotations

import contextlib
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NODES, FEATURES, EDGES = 40, 4, 120
_NUMBERS = """
0 1 2 3 5 17 -1 -0 0.0 0.5 1.5 1e-3 1e-300 1e300 1e-9 nan inf -inf NaN 1e9 1e12 1000000000 1000000000000
9223372036854775807 9223372036854775808 100000000000000000000000 -9223372036854775808 0x10 1_000 abc 1e
-- True None ½ ٣ 1,5 6/2/2
"""
_TEXTS = """
a ../.. / demo graph.npz 0.6/0.2/0.2 1/0/0 nan/0/0 -1/1/1 0/0/0 1e-9/0/0 // gcn %s {0} $HOME ~ ~root a,b id f0
label , a|b = f0=1 f0=16 color=a|b color=4 tab ; ' \"
"""
NUMBERS = [*_NUMBERS.split(), "", " 3", "3 "]
TEXTS = [*_TEXTS.split(), "", " ", "\x00", "a\nb", "x" * 300, "x" * 5000, "\u202e", "\udc80"]


class Payload:
    """Unpickling this makes a folder that must never be there."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Good inputs of every kind, to be copied and spoilt.

    Attributes:
        root: the folder that they are in.
        flags: of every command: its flags, and whether each takes a value.
    """

    root: Path
    flags: dict[str, list[tuple[str, bool]]]

    @classmethod
    def make(cls, root: Path) -> Place:
        import hushgraph as hg
        from hushgraph.cli.app import build_app

        root.mkdir(parents=True, exist_ok=True)
        arrays = good_arrays()
        np.savez(root / "graph.npz", **arrays)
        _write_pt(root / "graph.pt", arrays)
        _write_tables(root / "tables", arrays)
        hg.train(root / "graph.npz", epsilon=4.0, steps=2, hidden=3, device="cpu", out=root / "done")

        def stop(*told: Any) -> None:
            raise KeyboardInterrupt

        small: dict[str, Any] = {
            "epsilon": 4.0,
            "steps": 400,
            "hidden": 3,
            "device": "cpu",
            "batch_size": 1,
        }
        with contextlib.suppress(KeyboardInterrupt):
            hg.train(root / "graph.npz", out=root / "begun", observer=stop, **small)
        _nearly_end(root / "begun")
        import typer

        commands = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
        flags = {
            name: [
                (each.opts[0], not getattr(each, "is_flag", False))
                for each in command.params
                if each.opts[0].startswith("--") and each.opts[0] not in ("--help", "--download")
            ]
            for name, command in commands.items()
        }
        return cls(root=root, flags=flags)


def _nearly_end(folder: Path) -> None:
    """Pay for all but two steps of the run, so that resuming it is short."""
    from hushgraph.privacy.ledger import Ledger

    with Ledger.open(folder / "ledger.jsonl") as ledger:
        ledger.charge(ledger.planned_step, count=ledger.planned_steps - ledger.steps_charged - 2)


def good_arrays() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "edge_index": rng.integers(NODES, size=(2, EDGES)),
        "x": rng.random((NODES, FEATURES)).astype(np.float32),
        "y": rng.integers(3, size=NODES),
        "train_idx": np.arange(20),
        "val_idx": np.arange(20, 30),
        "test_idx": np.arange(30, 40),
    }


def _write_pt(path: Path, arrays: dict[str, Any]) -> None:
    import torch

    torch.save({name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}, path)


def _write_tables(folder: Path, arrays: dict[str, Any]) -> None:
    import duckdb

    folder.mkdir()
    split = ["train"] * 20 + ["val"] * 10 + ["test"] * 10
    lines = ["id,label,split,color," + ",".join(f"f{n}" for n in range(FEATURES))]
    for node in range(NODES):
        cells = [
            f"n{node}",
            str(arrays["y"][node]),
            split[node],
            "ab"[node % 2],
            *map(str, arrays["x"][node]),
        ]
        lines.append(",".join(cells))
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    ends = (f"n{source},n{target}" for source, target in arrays["edge_index"].T)
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(ends) + "\n")
    (folder / "graph.toml").write_text(
        'nodes = "nodes.csv"\nedges = "edges.csv"\n\n[columns]\nid = "id"\nlabel = "label"\n'
        'split = "split"\nfeatures = ["f0", "f1", "f2", "f3"]\n\n[columns.categorical]\ncolor = ["a", "b"]\n'
    )
    with duckdb.connect() as connection:
        for name in ("nodes", "edges"):
            connection.execute(
                f"COPY (SELECT * FROM read_csv('{folder / name}.csv')) "
                f"TO '{folder / name}.parquet' (FORMAT parquet)"
            )


def spoilt(rng: random.Random, content: bytes) -> bytes:
    """The same bytes with something wrong, or, once in a while, with nothing wrong."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        how, at = rng.randrange(9), rng.randrange(len(data) + 1)
        if how == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif how == 1:
            data = data[:at]
        elif how == 2:
            data[at:at] = rng.randbytes(rng.choice((1, 4, 100)))
        elif how == 3:
            data[at : at + rng.choice((1, 8, 64))] = b""
        elif how == 4:
            data[at : at + 8] = rng.choice((b"\0" * 8, b"\xff" * 8, b"\n" * 8, (2**62).to_bytes(8, "little")))
        elif how == 5:
            data += data[at : at + 200]
        elif how == 6:
            data = bytearray(
                rng.choice((b"", b"[" * 100_000, b"\x80\x04.", b"null", b"{}", rng.randbytes(64)))
            )
        elif how == 7 and data:
            digit = next((n for n in range(at, len(data)) if 48 <= data[n] <= 57), None)
            if digit is not None:
                data[digit : digit + 1] = rng.choice(NUMBERS).encode()
    return bytes(data)
