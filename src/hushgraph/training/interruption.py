"""Ctrl-C that lets a step end, and SIGTERM that does the same."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any


def handle_as_ctrl_c(number: int, frame: FrameType | None) -> None:
    """A handler that treats its signal as Ctrl-C, also where that one is ignored."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)


@contextlib.contextmanager
def treat_sigterm_as_interrupt() -> Iterator[None]:
    """Within this context SIGTERM, which machines are stopped with, ends a command as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, handle_as_ctrl_c)
    try:
        yield
    finally:
        # Keep a handler that someone else installed meanwhile, as a failing process of a group does.
        if signal.getsignal(signal.SIGTERM) is handle_as_ctrl_c:
            signal.signal(signal.SIGTERM, before)


class Interruption:
    """From the first `check` on, Ctrl-C only makes a note, and the next `check` raises KeyboardInterrupt.

    A second Ctrl-C interrupts at once, as ever. Used as a context manager; outside the main thread, where
    signals cannot be handled, it does nothing.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._is_requested = False

    def __enter__(self) -> Interruption:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def check(self) -> None:
        """Call between steps."""
        if self._is_requested:
            raise KeyboardInterrupt
        if self._before is None and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note_interrupt)

    def _note_interrupt(self, number: int, frame: FrameType | None) -> None:
        self._is_requested = True
        self._restore()

    def _restore(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None
