"""Downloads of official files, checked against their SHA-256 before anything is read from them."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from hushgraph.datasets.catalog.official import SHA256
from hushgraph.errors import DownloadError


def fetch(url: str, path: Path) -> None:
    """Download a file; it gets its name when all of it has arrived."""
    from torch.hub import download_url_to_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        download_url_to_file(url, str(path), progress=sys.stderr.isatty())
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{url} cannot be downloaded ({error})") from None


def check_digest(path: Path) -> None:
    """Raise DownloadError if the SHA-256 of a file is known and another one."""
    expected = SHA256.get(path.name)
    if expected is None:
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected:
        raise DownloadError(
            f"{path} has sha256={digest[:16]}..., expected {expected[:16]}...; delete it to download it again"
        )


def unpack(archive: Path, inside: str) -> None:
    """Extract the folder `inside` of an archive ("" for everything) next to it."""
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent) as draft, zipfile.ZipFile(archive) as opened:
            opened.extractall(draft)
            shutil.copytree(
                Path(draft, inside), archive.parent, dirs_exist_ok=True, copy_function=shutil.move
            )
    # A truncated archive raises any of these, a wrong checksum BadZipFile.
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise DownloadError(f"{archive} cannot be unpacked ({error}); delete it and try again") from None
