"""Ctrl-C that lets a step end, and SIGTERM that acts as Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class PostponedInterrupt:
    """Keeps a KeyboardInterrupt until the steps that are charged have been taken."""

    def __init__(self) -> None:
        self._error: KeyboardInterrupt | None = None

    @contextlib.contextmanager
    def postpone(self) -> Iterator[None]:
        """Keep a KeyboardInterrupt that is raised within this context."""
        try:
            yield
        except KeyboardInterrupt as error:
            self._error = error

    def check(self) -> None:
        """Raise what is kept."""
        if self._error is not None:
            raise self._error


@contextlib.contextmanager
def delay_interrupts() -> Iterator[Callable[[], None]]:
    """Give what to call between steps, within this context: Ctrl-C then lets a step end.

    From the first call on, Ctrl-C only makes a note, and the next call raises KeyboardInterrupt. A second
    Ctrl-C interrupts at once, as ever. Outside the main thread, where signals cannot be handled, nothing
    happens.
    """
    before: Any = None
    is_requested = False

    def note_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal before, is_requested
        is_requested = True
        # None where it comes before `check` has noted what to restore.
        if before is not None:
            signal.signal(signal.SIGINT, before)
            before = None

    def check() -> None:
        nonlocal before
        if is_requested:
            raise KeyboardInterrupt
        if before is None and threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGINT, note_interrupt)

    try:
        yield check
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def handle_as_ctrl_c(number: int, frame: FrameType | None) -> None:
    """A handler that treats its signal as Ctrl-C, also where that one is ignored."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)
