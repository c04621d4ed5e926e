"""Releases in object stores, which know neither folders nor renaming.

    ADDRESS/files/DIGEST     the files of all releases that were put there, by their digest
    ADDRESS/release.json     the pointer: names and digests of the files of the current release

Files are there before the pointer is, and are never changed or removed: who reads meanwhile sees the release
before or the one after, as a whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from hushgraph._stores import fetch_file, open_store
from hushgraph.datasets.catalog.data_root import data_root
from hushgraph.errors import RunError, WriteError, explain
from hushgraph.runs.release import list_files

POINTER = "release.json"
_FORMAT = 1


def put_release(release: Path, address: str) -> None:
    """Put a release into an object store, and have its pointer name it; nothing private is read or written.

    Args:
        release: the folder, as `write_release` made it.
        address: where, such as "s3://bucket/models/people".

    Guarantees:
        The pointer changes at once, and names files that are all there. What else lies in the folder, such as
        a report on data, stays where it is.
    """
    paths = list_files(release)
    files = {path.name: _digest(path.read_bytes()) for path in paths}
    pointer = json.dumps({"format": _FORMAT, "files": files}, indent=1).encode()
    with open_store(address) as (system, root):
        for name, digest in files.items():
            # Copied again even if it is there: an earlier copy may have been cut short.
            system.put_file(str(release / name), f"{root}/files/{digest}")
        system.pipe_file(f"{root}/{POINTER}", pointer)


def has_release(address: str) -> bool:
    """Whether a release was put at an address."""
    with open_store(address) as (system, root):
        return bool(system.exists(f"{root}/{POINTER}"))


def fetch_release(address: str) -> Path:
    """Copy the release that the pointer names into the user's cache and return its folder.

    Raises:
        RunError: where there is none, or files do not have the digests that the pointer names.
    """
    with open_store(address) as (system, root):
        pointer = system.cat_file(f"{root}/{POINTER}")
        files = _read_pointer(address, pointer)
        place = data_root() / "releases" / _digest(pointer)
        if place.is_dir():
            return place
        with explain(WriteError, f"{place.parent}: cannot be written", "set HUSHGRAPH_DATA"):
            place.parent.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(dir=place.parent))
        try:
            for name, digest in files.items():
                fetch_file(system, f"{root}/files/{digest}", draft / name)
                if _digest((draft / name).read_bytes()) != digest:
                    raise RunError(f"{address}: {name} is damaged; put the release there again")
            _move(draft, place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return place


def _move(draft: Path, place: Path) -> None:
    """Rename a folder, unless another process has created the target first."""
    try:
        os.rename(draft, place)
    except OSError:
        if not place.is_dir():
            raise


def _read_pointer(address: str, content: bytes) -> dict[str, str]:
    """Read the digests of the files by name; refuse names that point outside the folder."""
    try:
        about = json.loads(content)
        files: dict[str, str] = about["files"]
        is_safe = all(
            not Path(name).is_absolute() and ".." not in Path(name).parts and len(bytes.fromhex(digest)) == 32
            for name, digest in files.items()
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        is_safe = False
    if not is_safe or about.get("format") != _FORMAT:
        raise RunError(f"{address}: {POINTER} is not the pointer of a release; put the release there again")
    return files


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
