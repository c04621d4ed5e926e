"""A group of processes that train one model together; by default one process, alone."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import GroupError, HushgraphError, InputError, ReportedError
from hushgraph.training.interruption import handle_as_ctrl_c

TIMEOUT = "HUSHGRAPH_TIMEOUT"
# A process that dies is noticed at once; this is for one that hangs. It has to cover the longest that the
# others wait for one: all of a large graph is looked at by the leader alone.
_DEFAULT_TIMEOUT = 600.0
# What torchrun, or any other launcher, tells every process.
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class Group:
    """The processes that train one model, as one of them sees them. The first one, of rank 0, leads.

    All processes of a group must call the same methods in the same order.

    Attributes:
        rank: which of them this process is.
        size: how many there are.
        messages: the device that messages travel from.

    Guarantees:
        Where a method fails in one process, it fails in all of them; where a process is gone, at once, and
        where it hangs, after the timeout of the group.
        The shares of a draw are disjoint and together the draw.
    """

    rank: int = 0
    size: int = 1
    messages: str = "cpu"

    @property
    def leads(self) -> bool:
        """Whether this process keeps the ledger, draws the noise and writes the run."""
        return self.rank == 0

    def share(self, roots: np.ndarray) -> np.ndarray:
        """The roots of a batch that are this process's part of the work."""
        return roots[self.rank :: self.size]

    def assign_device(self, device: torch.device) -> torch.device:
        """Give this process a GPU of its own, or the CPU, where `device` was asked for."""
        if self.size == 1 or device.type != "cuda":
            return device
        count = torch.cuda.device_count()
        local = int(os.environ.get("LOCAL_RANK", self.rank % count))
        if local >= count:
            raise InputError(
                f"process {local + 1} of this machine has no GPU, there are {count}: start as many processes "
                "as there are GPUs, or use --device cpu"
            )
        own = torch.device("cuda", local)
        torch.cuda.set_device(own)
        return own

    def broadcast(self, make: Callable[[], _Value]) -> _Value:
        """Call `make` in the leader alone and give its value, made of JSON values, to every process."""
        if self.size == 1:
            return make()
        if not self.leads:
            message = self._exchange(None, by=0)
            if "error" in message:
                raise ReportedError(f"process 0: {message['error']}", message["code"])
            value: _Value = message["value"]
            return value
        try:
            value = make()
        except BaseException as error:
            # The reason matters more than whether the others could be told.
            with contextlib.suppress(GroupError):
                self._exchange(_describe_error(error), by=0)
            raise
        self._exchange({"value": value}, by=0)
        return value

    @contextlib.contextmanager
    def share_errors(self) -> Iterator[None]:
        """What fails within this context in one process fails in all, and one of them reports why."""
        if self.size == 1:
            yield
            return
        failure: BaseException | None = None
        try:
            yield
        except GroupError:
            raise
        except BaseException as error:
            failure = error
        mine = {} if failure is None else _describe_error(failure)
        messages = [self._exchange(mine, by=rank) for rank in range(self.size)]
        failed = [(rank, message) for rank, message in enumerate(messages) if "error" in message]
        if not failed:
            return
        first, message = failed[0]
        # A surprise is worth its traceback wherever it happens.
        if failure is not None and (self.leads or not isinstance(failure, HushgraphError)):
            raise failure
        kind = GroupError if self.leads else ReportedError
        raise kind(f"process {first}: {message['error']}", message["code"])

    def check_same(self, facts: Callable[[], Mapping[str, str]]) -> None:
        """Refuse to go on where the named facts are not the same in all processes; never shows them."""
        if self.size == 1:
            return
        mine = dict(facts())
        for rank in range(self.size):
            theirs = self._exchange(mine, by=rank)
            # Every process looks at every pair, so that all of them refuse or none does.
            if rank == 0:
                first = theirs
            odd = sorted(name for name in first if first[name] != theirs.get(name))
            if odd:
                kind = GroupError if self.leads else ReportedError
                raise kind(
                    f"{', '.join(odd)}: not the same in process 0 and process {rank}; give all processes the "
                    "same data, settings and versions",
                    InputError.exit_code,
                )

    def add_up(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Sum every tensor over the processes; only the leader's result is of use."""
        if self.size == 1:
            return dict(tensors)
        flat = _flatten(list(tensors.values()))
        with self._communicate() as dist:
            dist.reduce(flat, dst=0)
        return dict(zip(tensors, _unflatten(flat, list(tensors.values())), strict=True))

    def follow(self, tensors: Sequence[Tensor]) -> None:
        """Fill `tensors` with what the leader has in them."""
        if self.size == 1:
            return
        flat = _flatten(tensors)
        with self._communicate() as dist:
            dist.broadcast(flat, src=0)
        if not self.leads:
            for tensor, value in zip(tensors, _unflatten(flat, tensors), strict=True):
                tensor.copy_(value)

    def _exchange(self, mine: Any, *, by: int) -> Any:
        """Send what process `by` has as `mine` to all. JSON, so that no message can run code."""
        body = json.dumps(mine).encode() if by == self.rank else b""
        with self._communicate() as dist:
            length = torch.tensor([len(body)], device=self.messages)
            dist.broadcast(length, src=by)
            letters = (
                torch.frombuffer(bytearray(body), dtype=torch.uint8)
                if body
                else torch.empty(int(length), dtype=torch.uint8)
            ).to(self.messages)
            dist.broadcast(letters, src=by)
        return mine if by == self.rank else json.loads(letters.cpu().numpy().tobytes())

    @contextlib.contextmanager
    def _communicate(self) -> Iterator[Any]:
        """Give torch's package; turn an error inside into one line."""
        import torch.distributed as dist

        try:
            yield dist
        except RuntimeError as error:
            # The launcher notices as well and says so by this signal; the line below says it better.
            if signal.getsignal(signal.SIGTERM) is handle_as_ctrl_c:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            raise GroupError(
                f"process {self.rank} of {self.size}: another process is gone or hangs "
                f"({_first_line(error)}); "
                "all that was charged is in the ledger: go on with --resume, with any number of processes"
            ) from None


def require_leader(value: _Value | None) -> _Value:
    """Return `value`, which only the process that leads has."""
    if value is None:
        raise RuntimeError("only the process that leads its group has this")
    return value


def current_group() -> Group:
    """The process group that torch is in, where one has been made; else this process alone."""
    # Not imported here: without a launcher, torch's package is not needed.
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return Group()
    on_cpu = "cpu:" in str(dist.get_backend_config())
    return Group(rank=dist.get_rank(), size=dist.get_world_size(), messages="cpu" if on_cpu else "cuda")


@contextlib.contextmanager
def join_group() -> Iterator[Group]:
    """Within this context, the processes that a launcher such as torchrun has started are a group.

    Ctrl-C and SIGTERM are then for the leader alone, which tells the others once the step has ended.
    """
    launched = {name: os.environ.get(name, "") for name in _LAUNCHED}
    if not all(launched.values()) or launched["WORLD_SIZE"] == "1":
        yield current_group()
        return
    import torch.distributed as dist

    timeout = _read_timeout()
    # A lost GPU process then ends in an exception here, not in the end of this process.
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
    on_gpu = torch.cuda.is_available() and dist.is_nccl_available()
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=timeout)
    except (RuntimeError, ValueError) as error:
        raise GroupError(
            f"process {launched['RANK']} of {launched['WORLD_SIZE']}: could not join the others at "
            f"{launched['MASTER_ADDR']}:{launched['MASTER_PORT']} ({_first_line(error)}); start all of them "
            "together"
        ) from None
    group = current_group()
    _leave_signals_to_the_leader(group)
    _share_threads()
    yield group
    # Where something failed there may be nobody left to take leave of.
    dist.destroy_process_group()


def _read_timeout() -> timedelta:
    given = os.environ.get(TIMEOUT) or str(_DEFAULT_TIMEOUT)
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"{TIMEOUT}={given}: expected seconds, a number above 0")
    return timedelta(seconds=seconds)


def _leave_signals_to_the_leader(group: Group) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    if group.leads:
        signal.signal(signal.SIGTERM, handle_as_ctrl_c)
    else:
        # torchrun kills what does not end of itself soon after.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _share_threads() -> None:
    """Leave each process of this machine its part of the cores; torchrun does the same for torch."""
    if "NUMBA_NUM_THREADS" in os.environ:
        return
    import numba

    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    numba.set_num_threads(max(1, numba.config.NUMBA_NUM_THREADS // here))


def _describe_error(error: BaseException) -> dict[str, Any]:
    code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
    return {"error": str(error) or type(error).__name__, "code": code}


def _first_line(error: BaseException) -> str:
    """The first line of what torch says, without the places in its source that it begins with."""
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    return first.rpartition("] ")[2][:200].rstrip(". ")


def _flatten(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _unflatten(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Cut `flat` into tensors of the shapes and types of `like`."""
    parts = torch.split(flat, [tensor.numel() for tensor in like])
    return [part.view_as(tensor).to(tensor.dtype) for part, tensor in zip(parts, like, strict=True)]
