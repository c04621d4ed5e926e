"""Object stores, such as s3://bucket/folder: whatever fsspec opens. Each error is one line."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from hushgraph.errors import HushgraphError, InputError, RunError

# What a path makes of an address, "s3:/bucket", is one too.
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.DOTALL)


def find_address(path: str | os.PathLike[str]) -> str | None:
    """The address in an object store that this is, without a slash at its end; None for a path on disk."""
    match = _ADDRESS.fullmatch(os.fspath(path))
    return None if match is None else f"{match[1]}://{match[2].rstrip('/')}"


def check_address(text: str) -> str:
    """The address; InputError for anything else."""
    address = find_address(text)
    if address is None:
        raise InputError(f"to={text!r}: expected the address of an object store, such as s3://bucket/folder")
    return address


@contextlib.contextmanager
def open_store(address: str) -> Iterator[tuple[Any, str]]:
    """The file system of an address, and the address within it; RunError for whatever goes wrong there."""
    import fsspec

    try:
        yield fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise RunError(
            f"{address}: {error.msg.rstrip('.')} (for s3://: pip install 'hushgraph[s3]')"
        ) from None
    except FileNotFoundError:
        raise RunError(f"{address}: nothing was found there; check the address") from None
    # Stores have errors of their own, without a common kind.
    except Exception as error:
        if isinstance(error, HushgraphError):
            raise
        raise RunError(
            f"{address}: the store answered {_shorten(error)}; check address, credentials and network"
        ) from None


def fetch_file(system: Any, source: str, target: Path) -> None:
    """Copy a file of a store to disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    system.get_file(source, str(target))


def fetch_files(address: str, folder: Path, endings: Collection[str]) -> list[Path]:
    """Copy files of a store to a folder, in the order of their names: one, a folder of them, or a pattern."""
    with open_store(address) as (system, root):
        paths = system.glob(root) if glob.has_magic(root) else system.find(root)
        names = sorted(each for each in paths if Path(each).suffix.casefold() in endings)
        if not names:
            raise RunError(f"{address}: no table there; expected files that end in {', '.join(endings)}")
        copies = [folder / str(number) / Path(name).name for number, name in enumerate(names)]
        for name, copy in zip(names, copies, strict=True):
            fetch_file(system, name, copy)
    return copies


def _shorten(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__} ({text[:200]})" if text else type(error).__name__
