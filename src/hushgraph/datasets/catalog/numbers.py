"""Arrays of the official .npy and .npz files, none of them unpickled."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError


def read_arrays(path: Path, keys: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    """The named members of an `.npz` archive."""
    wanted = tuple(keys)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [key for key in wanted if key not in archive.files]
            if missing:
                raise GraphError(f"{path}: missing {', '.join(missing)}; expected {', '.join(wanted)}")
            return {key: archive[key] for key in wanted}
    except GraphError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise a dozen types on damaged files
        raise _damaged(path, error) from error


def read_array(path: Path) -> npt.NDArray[Any]:
    """The array of an `.npy` file."""
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
    except Exception as error:  # numpy raises a dozen types on damaged files
        raise _damaged(path, error) from error
    if not isinstance(found, np.ndarray):
        raise GraphError(f"{path} is an archive; expected one array")
    return found


def _damaged(path: Path, error: Exception) -> GraphError:
    return GraphError(
        f"{path} cannot be read ({type(error).__name__}); the file is damaged; delete it to have it fetched "
        "again"
    )
