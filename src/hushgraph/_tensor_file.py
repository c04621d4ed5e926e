"""Tensors on disk: safetensors with a checksum of what they hold, so that a flipped bit is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from hushgraph._files import write_whole
from hushgraph.errors import RunError

_SUM = "sum"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Replace the file by these tensors and these texts, or leave it as it was."""
    flat = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_whole(path, safetensors.torch.save(flat, {**about, _SUM: _checksum(flat, about)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and texts that `write_tensors` put there; RunError where they are others."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = dict(file.metadata() or {})
    except (OSError, safetensors.SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"run={path.parent}: {path.name} cannot be read ({reason}); restore it") from None
    if about.pop(_SUM, None) != _checksum(tensors, about):
        raise RunError(
            f"run={path.parent}: {path.name} is damaged (its checksum does not match); restore it from a "
            "copy, or train again"
        )
    return tensors, about


def _checksum(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        # As bytes, since numpy has no word for some types; a tensor of no dimensions cannot be viewed so.
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    digest.update(json.dumps(sorted(about.items())).encode())
    return digest.hexdigest()
