"""What hushgraph raises. Every message says what was found, what was expected and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class HushgraphError(Exception):
    """Anything that hushgraph raises on purpose."""

    exit_code = 1


class InputError(HushgraphError):
    """Something the user gave cannot be used; nothing was done."""

    exit_code = 2


class GraphError(InputError):
    """The graph, or the file it came from, is not a valid dataset."""


class MissingSplitError(GraphError):
    """The data says nothing about training, validation and test nodes, and no split was asked for."""


class PlanError(InputError):
    """The privacy parameters contradict each other or cannot be priced."""


class ModelError(InputError):
    """The model holds something that cannot be trained privately."""


class RunError(InputError):
    """A run folder is missing, damaged or belongs to another run."""


class WriteError(RunError):
    """A file cannot be written, as on a full disk; what was there before is still there."""

    exit_code = 1


class DivergedError(HushgraphError):
    """Training diverged: weights are NaN or infinite. What it cost stays spent."""


class DownloadError(HushgraphError):
    """A file could not be downloaded. The part received so far is kept, and the next attempt resumes."""


class GroupError(HushgraphError):
    """Training together has ended: another process failed, or is gone."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ReportedError(GroupError):
    """Another process ended the run and reports why, so that this one need not."""


class NotFittedError(InputError, ValueError, AttributeError):
    """The estimator was asked for something that only `fit` gives it."""


class BudgetExceededError(HushgraphError):
    """The next step would cost more than the budget allows; it was not taken."""

    exit_code = 3


@contextlib.contextmanager
def explain(kind: type[HushgraphError], what: str, advice: str) -> Iterator[None]:
    """Raise an error of the system within this context as one line: what cannot be done, why, what to do."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what} ({error.strerror or error}); {advice}") from None
