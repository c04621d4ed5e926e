"""Downloads: complete or absent, checked against known checksums, archives unpacked."""

from __future__ import annotations

import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hushgraph.datasets.catalog import download
from hushgraph.datasets.catalog.download import check_digest, fetch, unpack
from hushgraph.errors import DownloadError

CONTENT = bytes(range(256)) * 400


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/file":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def left_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_complete_file(address: str, tmp_path: Path) -> None:
    fetch(f"{address}/file", tmp_path / "raw/file.bin")
    assert (tmp_path / "raw/file.bin").read_bytes() == CONTENT
    assert left_in(tmp_path) == ["raw/file.bin"]


def test_no_such_file(address: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"/files cannot be downloaded \(HTTP Error 404: Not Found\)"):
        fetch(f"{address}/files", tmp_path / "file.bin")
    assert list(tmp_path.iterdir()) == []


def test_no_server(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_address[1]
    with pytest.raises(DownloadError, match=r"cannot be downloaded \(.*refused") as caught:
        fetch(f"http://127.0.0.1:{port}/file", tmp_path / "file.bin")
    assert caught.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(address: str, tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("a file where a folder should be")
    with pytest.raises(DownloadError, match="cannot be downloaded"):
        fetch(f"{address}/file", tmp_path / "raw/file.bin")


def test_another_checksum_than_the_known_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(CONTENT)
    check_digest(path)
    monkeypatch.setitem(download.SHA256, "file.bin", hashlib.sha256(CONTENT).hexdigest())
    check_digest(path)
    path.write_bytes(CONTENT[1:])
    with pytest.raises(DownloadError, match=r"file.bin has sha256=.{16}\.\.\., expected .*; delete it to"):
        check_digest(path)


def test_unpack(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("inner/raw/one.txt", "one")
        archive.writestr("inner/two.txt", "two")
        archive.writestr("../escaped.txt", "no")
        archive.writestr("other/three.txt", "no")
    unpack(tmp_path / "a.zip", "inner")
    assert left_in(tmp_path) == ["a.zip", "raw/one.txt", "two.txt"]
    assert not (tmp_path.parent / "escaped.txt").exists()
    unpack(tmp_path / "a.zip", "")
    assert "other/three.txt" in left_in(tmp_path)


def test_a_damaged_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one.txt", "content of one")
    content = (tmp_path / "a.zip").read_bytes()
    for damaged in (content[:-30], content.replace(b"content of one", b"CONTENT of one")):
        (tmp_path / "b.zip").write_bytes(damaged)
        with pytest.raises(DownloadError, match=r"b.zip cannot be unpacked .*delete it and try again"):
            unpack(tmp_path / "b.zip", "")
        assert left_in(tmp_path) == ["a.zip", "b.zip"]
