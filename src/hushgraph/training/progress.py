"""Progress of training: steps and epsilon, as a bar or as lines of a log, and nothing that is private."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from hushgraph._text import rounded_up

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from hushgraph.training.trainer import Observer

# Between two drawings of the bar, in seconds.
_PAUSE = 0.1
# Between two lines of a log, in seconds.
_BEAT = 10.0


class Bar(Protocol):
    """Shows how many steps are done."""

    def show(self, done: int, total: int, figures: str) -> None: ...

    def close(self) -> None: ...


def choose_bar(progress: bool | None) -> Callable[[], Bar] | None:
    """Return what makes a bar, or lines for a log; None where nothing is to be shown.

    Args:
        progress: True or False, or None for a bar in terminals and notebooks only.
    """
    if progress is False:
        return None
    if _in_notebook():
        return NotebookBar
    if sys.stderr.isatty():
        return TerminalBar
    return LogLines if progress else None


@contextlib.contextmanager
def watch_steps(make_bar: Callable[[], Bar] | None, observer: Observer) -> Iterator[Observer]:
    """An observer that moves a bar and then calls `observer`; the bar goes at the end.

    Guarantees:
        The bar shows steps and epsilon. It never sees a loss or an accuracy.
    """
    if make_bar is None:
        yield observer
        return
    bar, drawn = make_bar(), -_PAUSE

    def observe(done: int, total: int, epsilon: float, accuracy: float | None) -> None:
        nonlocal drawn
        now = time.monotonic()
        if now - drawn >= _PAUSE or done == total:
            bar.show(done, total, f"epsilon {rounded_up(epsilon)}")
            drawn = now
        observer(done, total, epsilon, accuracy)

    try:
        yield observe
    finally:
        bar.close()


class Heartbeat:
    """Prints a line about every 10 seconds to standard error where that is no terminal: a pipe or a log.

    The first line comes after 10 seconds, so that short work prints nothing.

    Args:
        clock: gives seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def beat(self, text: str) -> None:
        """Print the line if it is time."""
        now = self._clock()
        if now - self._last >= _BEAT:
            self._last = now
            print(text, file=sys.stderr, flush=True)


def describe_progress(what: str, done: float, total: float, figures: str) -> str:
    """One line for a log, such as `step 120 of 300, epsilon 0.71`."""
    return f"{what} {int(done):,} of {int(total):,}" + (f", {figures}" if figures else "")


class LogLines:
    """A line about every 10 seconds, and one for the last step."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._heartbeat = Heartbeat(clock=clock)
        self._last = ""

    def show(self, done: int, total: int, figures: str) -> None:
        self._last = describe_progress("step", done, total, figures)
        if done < total:
            self._heartbeat.beat(self._last)
            self._last = ""

    def close(self) -> None:
        if self._last:
            print(self._last, file=sys.stderr, flush=True)


class TerminalBar:
    """A line of the terminal, which goes at the end: how many are done, some figures, the time left.

    Args:
        what: is counted.
        console: where to draw, instead of standard error.
    """

    def __init__(self, what: str = "step", console: Console | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn(what, markup=False),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console or Console(stderr=True),
            transient=True,
            # Results go to standard output while the line is shown, so rich must not take that over.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._progress.start()
        self._task: TaskID | None = None

    def show(self, done: float, total: float, figures: str) -> None:
        shown: dict[str, Any] = {"completed": done, "total": total, "figures": figures}
        if self._task is None:
            # What an earlier process did, as of a resumed run, must not count as speed.
            self._task = self._progress.add_task("", **shown)
        else:
            self._progress.update(self._task, **shown)

    def close(self) -> None:
        self._progress.stop()


class NotebookBar:
    """An element of HTML in the output of a cell; needs IPython alone, no widgets."""

    def __init__(self) -> None:
        from importlib import import_module

        self._display = import_module("IPython.display")
        self._handle: Any = None

    def show(self, done: int, total: int, figures: str) -> None:
        text = f"step {done:,} of {total:,}, {figures}"
        self._draw(f'<progress value="{done}" max="{total}"></progress> {text}')

    def close(self) -> None:
        if self._handle is not None:
            self._draw("")

    def _draw(self, html: str) -> None:
        content = self._display.HTML(html)
        if self._handle is None:
            self._handle = self._display.display(content, display_id=True)
        else:
            self._handle.update(content)


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython is not imported for it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
