"""Downloads: resumed after an interruption, checked, and put in place completely or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from hushgraph.errors import DownloadError

Progress = Callable[[int, int | None], None]

_CHUNK = 1 << 20
_TIMEOUT = 30.0


@dataclass(frozen=True, kw_only=True)
class Remote:
    """One file to download.

    Attributes:
        url: its address.
        path: its destination, relative to the folder of the dataset.
        size: its approximate size in bytes, shown before the download.
        sha256: its checksum; None if it is not known.
        unpack: for an archive, the folder in it whose content is extracted ("" for everything).
    """

    url: str
    path: str
    size: int
    sha256: str | None = None
    unpack: str | None = None


def fetch(
    remote: Remote, folder: Path, *, progress: Progress | None = None, attempts: int = 3, pause: float = 1.0
) -> Path:
    """Download a file into `folder`, unless it exists, and return its path.

    Guarantees:
        The file gets its name only when it is complete and its checksum, if known, is correct. Until then it
        is NAME.part, which a later call resumes if the server still has the same file.
    """
    path = folder / remote.path
    if path.is_file():
        return path
    part = path.with_name(path.name + ".part")
    try:
        for attempt in range(attempts):
            try:
                _resume(remote.url, part, progress)
                break
            except urllib.error.HTTPError as error:
                raise DownloadError(f"{remote.url} answered {error.code} {error.reason}") from None
            # The server closed the connection, the name did not resolve, or the connection was refused.
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                if attempt + 1 == attempts:
                    reason = getattr(error, "reason", error)
                    raise DownloadError(f"no connection to {remote.url} ({reason})") from None
                time.sleep(pause)
        if remote.sha256 is not None and (digest := _sha256(part)) != remote.sha256:
            _remove_part(part)
            raise DownloadError(
                f"{remote.url} has sha256={digest[:16]}..., expected {remote.sha256[:16]}...; it was deleted"
            )
        os.replace(part, path)
        _remove_part(part)
    except OSError as error:
        raise DownloadError(f"{path} cannot be written ({error.strerror or error}); free space") from None
    return path


def unpack(archive: Path, inside: str, folder: Path) -> None:
    """Extract the files under `inside` from `archive` to `folder`, each completely or not at all."""
    try:
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                place = PurePosixPath(info.filename)
                if info.is_dir() or place.is_absolute() or ".." in place.parts:
                    continue
                if inside and place.parts[0] != inside:
                    continue
                path = folder.joinpath(*place.parts[1 if inside else 0 :])
                if path.is_file() and path.stat().st_size == info.file_size:
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                draft = path.with_name(path.name + ".draft")
                try:
                    with opened.open(info) as source, draft.open("wb") as target:
                        while chunk := source.read(_CHUNK):
                            target.write(chunk)
                    os.replace(draft, path)
                finally:
                    draft.unlink(missing_ok=True)
    # A truncated archive raises any of these, a wrong checksum BadZipFile.
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(
            f"{archive} is not a complete zip archive ({error}); delete it and try again"
        ) from None
    except OSError as error:
        raise DownloadError(f"{archive} cannot be unpacked ({error.strerror or error}); free space") from None


@contextlib.contextmanager
def download_bar(label: str) -> Iterator[Progress]:
    """Show a progress bar on standard error if it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn(label), BarColumn(bar_width=20), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _resume(url: str, part: Path, progress: Progress | None) -> None:
    """Append to `part` the bytes of `url` that it lacks."""
    size = part.stat().st_size if part.is_file() else 0
    version = _version_file(part)
    request = urllib.request.Request(url, headers={"User-Agent": "hushgraph", "Accept-Encoding": "identity"})
    if size and version.is_file():
        request.add_header("Range", f"bytes={size}-")
        # The server sends the full file if it is no longer the one that was started.
        request.add_header("If-Range", version.read_text(encoding="latin-1"))
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        error.close()
        # No bytes follow: the part is complete, or it belongs to another file.
        if error.headers.get("Content-Range", "").endswith(f"/{size}"):
            return
        _remove_part(part)
        answer = urllib.request.urlopen(url, timeout=_TIMEOUT)
    part.parent.mkdir(parents=True, exist_ok=True)
    with answer:
        is_resumed = answer.status == 206
        done = size if is_resumed else 0
        length = answer.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        tag = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        with part.open("ab" if is_resumed else "wb") as file:
            if tag and not tag.startswith("W/"):
                version.write_text(tag, encoding="latin-1")
            elif not is_resumed:
                version.unlink(missing_ok=True)
            _copy(answer, file, done, total, progress)


def _copy(
    answer: http.client.HTTPResponse, file: BinaryIO, done: int, total: int | None, progress: Progress | None
) -> None:
    while chunk := answer.read(_CHUNK):
        file.write(chunk)
        done += len(chunk)
        if progress is not None:
            progress(done, total)
    if total is not None and done != total:
        raise http.client.HTTPException(f"it ended after {done:,} of {total:,} bytes")


def _version_file(part: Path) -> Path:
    return part.with_name(part.name + ".version")


def _remove_part(part: Path) -> None:
    part.unlink(missing_ok=True)
    _version_file(part).unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
