"""Downloads against a server on this machine: resumed, checked, whole or absent."""

from __future__ import annotations

import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hushgraph.datasets.catalog.download import DownloadError, Remote, fetch, unpack

CONTENT = bytes(range(256)) * 400
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT; `breaks` times it hangs up half-way through what was asked for."""

    tag = '"one"'
    content = CONTENT
    breaks = 0
    ranges: bool = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, begin = self.server, 0
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if self.path != "/file":
            self.send_error(404)
            return
        if asked and server.ranges and self.headers.get("If-Range") == server.tag:
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(server.content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(server.content)}")
                self.end_headers()
                return
        body = server.content[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", server.tag)
        self.end_headers()
        if server.breaks:
            server.breaks -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def remote(server: Server) -> Remote:
    url = f"http://127.0.0.1:{server.server_address[1]}/file"
    return Remote(url=url, path="raw/file.bin", size=1, sha256=SHA256)


def left_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_whole(server: Server, remote: Remote, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch(remote, tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert left_in(tmp_path) == ["raw/file.bin"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    fetch(remote, tmp_path)
    assert len(server.asked) == 1


def test_goes_on_after_a_break(server: Server, remote: Remote, tmp_path: Path) -> None:
    server.breaks = 2
    assert fetch(remote, tmp_path, pause=0).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=51200-", "bytes=76800-"]


def test_a_later_call_goes_on(server: Server, remote: Remote, tmp_path: Path) -> None:
    server.breaks = 1
    with pytest.raises(DownloadError, match="it ended after 51,200 of 102,400 bytes"):
        fetch(remote, tmp_path, attempts=1)
    assert left_in(tmp_path) == ["raw/file.bin.part", "raw/file.bin.part.version"]
    assert fetch(remote, tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=51200-"
    assert left_in(tmp_path) == ["raw/file.bin"]


def test_another_file_is_begun_anew(server: Server, remote: Remote, tmp_path: Path) -> None:
    server.breaks, server.content, server.tag = 1, b"old" * 1000, '"old"'
    with pytest.raises(DownloadError):
        fetch(remote, tmp_path, attempts=1)
    server.content, server.tag = CONTENT, '"new"'
    assert fetch(remote, tmp_path).read_bytes() == CONTENT


def test_a_server_without_ranges(server: Server, remote: Remote, tmp_path: Path) -> None:
    server.breaks, server.ranges = 1, False
    assert fetch(remote, tmp_path, pause=0).read_bytes() == CONTENT


def test_nothing_was_missing_but_the_name(server: Server, remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/file.bin.part").write_bytes(CONTENT)
    (tmp_path / "raw/file.bin.part.version").write_text(server.tag)
    assert fetch(remote, tmp_path).read_bytes() == CONTENT
    (tmp_path / "raw/file.bin").rename(tmp_path / "raw/file.bin.part")
    (tmp_path / "raw/file.bin.part.version").write_text(server.tag)
    server.content = CONTENT[:100]
    assert fetch(replace(remote, sha256=None), tmp_path).read_bytes() == CONTENT[:100]


def test_wrong_check_sum(server: Server, remote: Remote, tmp_path: Path) -> None:
    server.content = b"something else"
    with pytest.raises(
        DownloadError, match=rf"sha256=.{{16}}\.\.\., expected {SHA256[:16]}\.\.\.; it was deleted"
    ):
        fetch(remote, tmp_path)
    assert left_in(tmp_path) == []


def test_no_such_file(server: Server, remote: Remote, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="answered 404 Not Found"):
        fetch(replace(remote, url=remote.url + "s"), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(server.asked) == 1


def test_no_server(tmp_path: Path) -> None:
    with Server() as closed:
        port = closed.server_address[1]
    remote = Remote(url=f"http://127.0.0.1:{port}/file", path="file", size=1)
    with pytest.raises(DownloadError, match=r"no connection to http://.* \(.*refused\)") as caught:
        fetch(remote, tmp_path, attempts=2, pause=0)
    assert caught.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("a file where a folder should be")
    with pytest.raises(DownloadError, match=r"file\.bin cannot be written"):
        fetch(remote, tmp_path)


def test_unpack(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("inner/", "")
        archive.writestr("inner/raw/one.txt", "one")
        archive.writestr("inner/two.txt", "two")
        archive.writestr("inner/../../escaped.txt", "no")
        archive.writestr("/absolute.txt", "no")
        archive.writestr("other/three.txt", "no")
    unpack(tmp_path / "a.zip", "inner", tmp_path / "out" / "here")
    assert left_in(tmp_path / "out") == ["here/raw/one.txt", "here/two.txt"]
    assert not (tmp_path / "escaped.txt").exists()
    unpack(tmp_path / "a.zip", "", tmp_path / "all")
    assert left_in(tmp_path / "all") == ["inner/raw/one.txt", "inner/two.txt", "other/three.txt"]


def test_a_damaged_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one.txt", "content of one")
    content = (tmp_path / "a.zip").read_bytes()
    for damaged in (content[:-30], content.replace(b"content of one", b"CONTENT of one")):
        (tmp_path / "b.zip").write_bytes(damaged)
        with pytest.raises(
            DownloadError, match=r"b.zip is not a complete zip archive .*delete it and try again"
        ):
            unpack(tmp_path / "b.zip", "", tmp_path / "out")
        assert left_in(tmp_path / "out") == []
