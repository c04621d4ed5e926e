"""Files from the network: resumed where they stopped, checked, and in place as a whole or not at all."""

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

from hushgraph.errors import HushgraphError

Progress = Callable[[int, int | None], None]

_CHUNK = 1 << 20
_TIMEOUT = 30.0


class DownloadError(HushgraphError):
    """A file could not be fetched; what came so far is kept and the next attempt goes on from there."""


@dataclass(frozen=True, kw_only=True)
class Remote:
    """One file on the network.

    Attributes:
        url: where it is.
        path: where it goes, relative to the folder of the dataset.
        about: its size in bytes, roughly; shown before it is fetched.
        sha256: its check sum, where one is known.
        unpack: for an archive, the folder inside whose content is wanted ("" for all of it).
    """

    url: str
    path: str
    about: int
    sha256: str | None = None
    unpack: str | None = None


def fetch(
    remote: Remote, folder: Path, *, progress: Progress | None = None, attempts: int = 3, pause: float = 1.0
) -> Path:
    """Bring one file into `folder`, unless it is there, and give its path.

    Guarantees:
        The file appears under its name only when it is complete and its check sum, where known, is right.
        Until then it grows as NAME.part, which a later call continues if the server still has the same file.
    """
    path = folder / remote.path
    if path.is_file():
        return path
    part = path.with_name(path.name + ".part")
    try:
        for attempt in range(attempts):
            try:
                _continue(remote.url, part, progress)
                break
            except urllib.error.HTTPError as error:
                raise DownloadError(f"{remote.url} answered {error.code} {error.reason}") from None
            # A server that hangs up, a name that does not resolve, a connection that is refused.
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                if attempt + 1 == attempts:
                    reason = getattr(error, "reason", error)
                    raise DownloadError(f"no connection to {remote.url} ({reason})") from None
                time.sleep(pause)
        if remote.sha256 is not None and (found := _sha256(part)) != remote.sha256:
            _forget(part)
            raise DownloadError(
                f"{remote.url} has sha256={found[:16]}..., expected {remote.sha256[:16]}...; it was deleted"
            )
        os.replace(part, path)
        _forget(part)
    except OSError as error:
        raise DownloadError(f"{path} cannot be written ({error.strerror or error}); free space") from None
    return path


def unpack(archive: Path, inside: str, folder: Path) -> None:
    """Put the files that `archive` holds under `inside` into `folder`, each as a whole or not at all."""
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
    # Truncated archives surface as any of these, wrong check sums as BadZipFile.
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(
            f"{archive} is not a whole zip archive ({error}); delete it and try again"
        ) from None
    except OSError as error:
        raise DownloadError(f"{archive} cannot be unpacked ({error.strerror or error}); free space") from None


@contextlib.contextmanager
def download_bar(label: str) -> Iterator[Progress]:
    """A bar on standard error, and nothing where that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn(label), BarColumn(bar_width=20), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _continue(url: str, part: Path, progress: Progress | None) -> None:
    """Add to `part` what it lacks of `url`."""
    have = part.stat().st_size if part.is_file() else 0
    version = _version_file(part)
    request = urllib.request.Request(url, headers={"User-Agent": "hushgraph", "Accept-Encoding": "identity"})
    if have and version.is_file():
        request.add_header("Range", f"bytes={have}-")
        # Answered in full if the file is no longer the one that was begun.
        request.add_header("If-Range", version.read_text(encoding="latin-1"))
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        error.close()
        # Nothing lies beyond what is here: whole already, or of no use.
        if error.headers.get("Content-Range", "").endswith(f"/{have}"):
            return
        _forget(part)
        answer = urllib.request.urlopen(url, timeout=_TIMEOUT)
    part.parent.mkdir(parents=True, exist_ok=True)
    with answer:
        resumed = answer.status == 206
        done = have if resumed else 0
        length = answer.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        tag = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        with part.open("ab" if resumed else "wb") as file:
            if tag and not tag.startswith("W/"):
                version.write_text(tag, encoding="latin-1")
            elif not resumed:
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
        raise http.client.HTTPException(f"it broke off after {done:,} of {total:,} bytes")


def _version_file(part: Path) -> Path:
    return part.with_name(part.name + ".version")


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _version_file(part).unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
