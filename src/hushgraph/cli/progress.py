"""Progress of a run on a terminal: steps, epsilon so far, validation accuracy, time left."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from hushgraph._text import rounded_up


class StepProgress:
    """An observer of `train` that draws a bar on standard error, and nothing where that is not a terminal.

    Args:
        quiet: draw nothing anywhere.
        console: another place to draw on.

    Guarantees:
        Epsilon is rounded up.
    """

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        console = Console(stderr=True) if console is None else console
        self._bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
            redirect_stdout=False,
            disable=quiet or not console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> StepProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int, epsilon: float, accuracy: float | None) -> None:
        """What `train` calls after every step."""
        if self._bar.disable:
            return
        figures = f"epsilon {rounded_up(epsilon)}"
        if accuracy is not None:
            figures += f"  validation {accuracy:.1%}"
        if self._task is None:
            # A resumed run begins somewhere in the middle, which must not count as speed.
            self._bar.start()
            self._task = self._bar.add_task("", total=total, completed=done - 1, figures=figures)
        self._bar.update(self._task, completed=done, figures=figures)
