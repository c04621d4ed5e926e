"""The file under a ledger: lines chained by checksums, whole-file replacement, one writer at a time."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hushgraph.accounting.events import Draw, Event, FixedSizeDraw, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.errors import RunError

DRAWS: dict[str, type[Draw]] = {"poisson": PoissonDraw, "fixed": FixedSizeDraw}


def written(entry: dict[str, Any], *, after: str) -> tuple[bytes, str]:
    """One line for `entry`, and its checksum, which also covers the checksum of the line before."""
    body = json.dumps(entry, allow_nan=False)
    checksum = _checksum(body, after)
    return f'{body[:-1]}, "sum": "{checksum}"}}\n'.encode(), checksum


def parsed(raw: bytes, *, after: str) -> tuple[dict[str, Any], str] | None:
    """The entry of a line and its checksum; None where the line is torn, damaged or out of place."""
    try:
        entry = json.loads(raw)
        checksum = entry.pop("sum")
        body = json.dumps(entry, allow_nan=False)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None
    if checksum != _checksum(body, after) or written(entry, after=after)[0] != raw + b"\n":
        return None
    return entry, checksum


def _checksum(body: str, after: str) -> str:
    return hashlib.sha256(f"{after}\n{body}".encode()).hexdigest()[:32]


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as JSON values."""
    if isinstance(event, GaussianEvent):
        return {
            "shift_over_sigma": event.shift_over_sigma if math.isfinite(event.shift_over_sigma) else "inf"
        }
    names = {kind: name for name, kind in DRAWS.items()}
    return {
        "draw": {"kind": names[type(event.draw)], **asdict(event.draw)},
        "changed_trees": event.changed_trees,
        "sigma_over_clip": event.sigma_over_clip,
    }


def event_from_json(fields: dict[str, Any]) -> Event:
    """The event that `event_to_json` wrote; one of several errors where something else did."""
    if "shift_over_sigma" in fields:
        return GaussianEvent(shift_over_sigma=float(fields["shift_over_sigma"]))
    draw = dict(fields["draw"])
    kind = DRAWS[draw.pop("kind")]
    for value in (*draw.values(), fields["changed_trees"], fields["sigma_over_clip"]):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise ValueError(f"{value!r}: expected a number of at least 0")
    return StepEvent(
        draw=kind(**draw), changed_trees=fields["changed_trees"], sigma_over_clip=fields["sigma_over_clip"]
    )


def lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def is_same(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`, neither removed nor replaced."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def lock(path: Path) -> int:
    """Hold the lock beside `path`; it goes with the process, however that ends."""
    try:
        import fcntl
    except ImportError:
        raise RunError(
            f"ledger={path}: this system cannot lock files, so spending cannot be guarded"
        ) from None
    try:
        descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(
            f"ledger={path}: cannot be locked ({error}); choose a folder you can write to"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = is_same(descriptor, lock_path(path))
    except OSError:
        held = False
    if not held:
        os.close(descriptor)
        raise RunError(f"ledger={path}: another process is writing to it; wait for it to end")
    return descriptor


def unlock(descriptor: int) -> None:
    """Release what `lock` holds, also where a forked child still has it open."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
