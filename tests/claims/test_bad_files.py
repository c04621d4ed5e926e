"""Whatever an .npz file holds, reading it ends in a graph or in one clear line, and runs nothing from it."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgraph.cli.app import main
from hushgraph.datasets import load_graph
from hushgraph.errors import GraphError, InputError
from hushgraph.graph.graph import Graph

NODES, FEATURES, EDGES = 40, 6, 120


def good_arrays(*, sparse: bool) -> dict[str, Any]:
    rng = np.random.Generator(np.random.PCG64(7))
    arrays: dict[str, Any] = {
        "edge_index": rng.integers(NODES, size=(2, EDGES)).astype(np.int32),
        "y": rng.integers(3, size=NODES).astype(np.int16),
        "train_idx": np.arange(0, 20, dtype=np.int32),
        "val_idx": np.arange(20, 30, dtype=np.int32),
        "test_idx": np.arange(30, 40, dtype=np.int32),
    }
    if not sparse:
        return arrays | {"x": rng.random((NODES, FEATURES)).astype(np.float32)}
    return arrays | {
        "x_indptr": np.arange(NODES + 1, dtype=np.int32),
        "x_indices": rng.integers(FEATURES, size=NODES).astype(np.uint16),
        "x_data": np.ones(1, np.uint8),
        "x_shape": np.array([NODES, FEATURES]),
    }


def archive(arrays: dict[str, Any], *, compressed: bool = True) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


class Payload:
    """Unpickling this creates the file that MARK names."""

    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["HUSHGRAPH_TEST_MARK"],)


def with_payload(key: str, base: dict[str, Any]) -> Callable[[], bytes]:
    return lambda: archive(base | {key: np.array([Payload(), Payload()], dtype=object)})


def members_replaced(base: dict[str, Any], key: str, change: Callable[[bytes], bytes]) -> bytes:
    """The archive of `base` with the stored bytes of one array changed and all checksums right."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive(base))) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, change(content) if name == f"{key}.npy" else content)
    return out.getvalue()


def header_claiming(shape: str) -> Callable[[bytes], bytes]:
    """Replace the shape in an .npy header, keeping the length of the header."""

    def change(content: bytes) -> bytes:
        length = 10 + int.from_bytes(content[8:10], "little")
        head = content[10:length].decode("latin1")
        start, end = head.index("'shape': ") + 9, head.index(")", head.index("'shape': ")) + 1
        claimed = (head[:start] + shape + head[end:]).rstrip()
        return content[:10] + claimed.ljust(length - 11).encode("latin1") + b"\n" + content[length:]

    return change


def cases() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """At least 100 files, each of which has something wrong with it."""
    dense, rows = good_arrays(sparse=False), good_arrays(sparse=True)
    rng = np.random.Generator(np.random.PCG64(11))
    for name, base in (("dense", dense), ("sparse", rows)):
        for key in base:
            if key not in ("val_idx", "test_idx"):
                without = {k: v for k, v in base.items() if k != key}
                yield f"{name} without {key}", lambda without=without: archive(without)
            yield f"{name} {key} with one dimension more", lambda b=base, k=key: archive(b | {k: b[k][None]})
            yield f"{name} {key} as text", lambda b=base, k=key: archive(b | {k: b[k].astype("U9")})
            yield f"{name} {key} unpickles", with_payload(key, base)
    for key in ("edge_index", "y", "train_idx", "val_idx", "test_idx"):
        yield f"{key} as floats", lambda k=key: archive(dense | {k: dense[k].astype(float)})
        yield f"{key} as bools", lambda k=key: archive(dense | {k: dense[k].astype(bool)})
        for value in (-7, NODES + 3):
            # A label of any height is a class if num_classes is not given, so labels only fail below -1.
            wrong = dense[key].astype(np.int64).copy()
            wrong.flat[3] = min(value, -2) if key == "y" else value
            yield f"{key} holds {wrong.flat[3]}", lambda k=key, w=wrong: archive(dense | {k: w})
    for value in (np.nan, np.inf, -np.inf):
        spoilt = dense["x"].copy()
        spoilt[5, 2] = value
        yield f"x holds {value}", lambda s=spoilt: archive(dense | {"x": s})
        yield f"x_data is {value}", lambda v=value: archive(rows | {"x_data": np.array([v])})
    yield "x too short", lambda: archive(dense | {"x": dense["x"][:-1]})
    yield "x empty", lambda: archive(dense | {"x": dense["x"][:, :0]})
    yield "no training nodes", lambda: archive(dense | {"train_idx": dense["train_idx"][:0]})
    yield "splits overlap", lambda: archive(dense | {"val_idx": dense["train_idx"]})
    yield "edge_index transposed", lambda: archive(dense | {"edge_index": dense["edge_index"].T})
    yield "x_shape enormous", lambda: archive(rows | {"x_shape": np.array([2**62, 2**62])})
    yield "x_shape too many rows", lambda: archive(rows | {"x_shape": np.array([10**9, 6])})
    yield "x_indptr falls", lambda: archive(rows | {"x_indptr": rows["x_indptr"][::-1]})
    yield "x_indices beyond", lambda: archive(rows | {"x_indices": rows["x_indices"] + 6})
    for shape in ("(2, 9999999999)", "(99999999999,)", "(-2, -120)", "(2, 119)", "()", "(2,,)", "__import__"):
        claim = header_claiming(shape)
        yield f"header claims {shape}", lambda c=claim: members_replaced(dense, "edge_index", c)
    yield "member is a pickle", lambda: members_replaced(dense, "y", lambda _: pickle.dumps(Payload()))
    yield "member is empty", lambda: members_replaced(dense, "y", lambda _: b"")
    yield "member is cut", lambda: members_replaced(dense, "y", lambda content: content[:-5])
    yield (
        "member is in another format",
        lambda: members_replaced(dense, "y", lambda c: c[:6] + b"\x09" + c[7:]),
    )
    yield "file is a pickle", lambda: pickle.dumps(Payload())
    yield "file is empty", lambda: b""
    yield "file is text", lambda: b"source,target\n0,1\n"
    yield "archive is empty", lambda: archive({})
    yield "random bytes", lambda: rng.bytes(5_000)
    yield "random bytes that start like an archive", lambda: b"PK\x03\x04" + rng.bytes(5_000)
    for base in (dense, rows):
        whole = archive(base)
        for cut in rng.integers(1, len(whole) - 1, size=12):
            yield f"cut at {cut} of {len(whole)}", lambda w=whole, c=int(cut): w[:c]
        for seed in rng.integers(2**32, size=12):
            yield f"bit flipped, seed {seed}", lambda w=whole, s=int(seed): flipped_inside_an_array(w, s)


def flipped_inside_an_array(whole: bytes, seed: int) -> bytes:
    """Flip one bit of the stored bytes of some array."""
    rng = np.random.Generator(np.random.PCG64(seed))
    with zipfile.ZipFile(io.BytesIO(whole)) as opened:
        members = opened.infolist()
    member = members[int(rng.integers(len(members)))]
    at = member.header_offset
    at += (
        30
        + int.from_bytes(whole[at + 26 : at + 28], "little")
        + int.from_bytes(whole[at + 28 : at + 30], "little")
    )
    place = at + int(rng.integers(member.compress_size))
    return whole[:place] + bytes([whole[place] ^ (1 << int(rng.integers(8)))]) + whole[place + 1 :]


CASES = list(cases())


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "the-payload-ran"
    monkeypatch.setenv("HUSHGRAPH_TEST_MARK", str(path))
    return path


def test_the_good_files_are_good(tmp_path: Path) -> None:
    for sparse in (False, True):
        for compressed in (False, True):
            (tmp_path / "good.npz").write_bytes(archive(good_arrays(sparse=sparse), compressed=compressed))
            assert load_graph(tmp_path / "good.npz").num_nodes == NODES


def test_there_are_a_hundred_cases() -> None:
    assert len(CASES) >= 100


@pytest.mark.parametrize(
    "make", [make for _, make in CASES], ids=[f"{i}: {name}" for i, (name, _) in enumerate(CASES)]
)
def test_bad_file_is_one_line(make: Callable[[], bytes], tmp_path: Path, mark: Path) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(make())
    with pytest.raises(GraphError) as caught:
        load_graph(path)
    message = str(caught.value)
    assert issubclass(GraphError, InputError)
    assert caught.value.exit_code == 2
    assert "bad.npz: " in message
    assert "\n" not in message
    assert len(message) < 300
    assert not mark.exists()


def test_the_command_says_one_line(
    tmp_path: Path, mark: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.npz"
    for name, make in CASES:
        # Training draws the split that is missing.
        if name.endswith("without train_idx"):
            continue
        path.write_bytes(make())
        code = main(["train", str(path), "--epsilon", "1"])
        out, err = capsys.readouterr()
        assert code == 2, name
        assert out == "", name
        assert err.startswith("hushgraph: "), name
        assert err.count("\n") == 1, name
        assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.npz"], name
    assert not mark.exists()


def test_the_payload_would_have_run(tmp_path: Path, mark: Path) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(with_payload("y", good_arrays(sparse=False))())
    with np.load(path, allow_pickle=True) as opened, pytest.raises(FileExistsError):
        # Two payloads: the second finds what the first one made.
        opened["y"]
    assert mark.exists()


def test_any_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    """Bits outside the arrays (dates, attributes, names of optional keys) may leave a file readable.

    Then edges, features, labels and training split are the same.
    """
    whole = archive(good_arrays(sparse=True))
    path = tmp_path / "flipped.npz"
    path.write_bytes(whole)
    wanted = load_graph(path)
    rng = np.random.Generator(np.random.PCG64(5))
    messages = []
    for place in rng.integers(len(whole), size=300):
        bit = 1 << int(rng.integers(8))
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        try:
            graph: Graph = load_graph(path)
        except GraphError as error:
            messages.append(str(error))
            continue
        for name in ("indptr", "indices", "y", "train_idx"):
            assert np.array_equal(getattr(graph, name), getattr(wanted, name))
        assert np.array_equal(graph.x.toarray(), wanted.x.toarray())
    assert len(messages) > 100
    assert all("\n" not in message and len(message) < 300 for message in messages)
