"""What happens between steps: looks at the validation split, checkpoints, the observer."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, field

from hushgraph.errors import RunError
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.checkpoint import Progress, write_checkpoint
from hushgraph.runs.folder import RunFolder
from hushgraph.runs.result import append_metrics
from hushgraph.training.evaluation import evaluate_exactly
from hushgraph.training.source import View
from hushgraph.training.trainer import Observer, Trainer

CHECKPOINT_SECONDS = 5.0
# Pricing takes a twentieth of a second or so: often enough for a progress bar, too long for every step.
_PRICES_PER_RUN = 20


@dataclass(eq=False, kw_only=True)
class Watch:
    """Between steps: looks at the validation split, keeps checkpoints, tells the observer.

    A process that does not lead has no ledger and does nothing between steps.

    Attributes:
        trainer, ledger, folder, observer: of the run.
        view: the rows, to measure accuracies on.
        steps_lost: steps that were charged and lost in a kill.
        begin: when the run began, in seconds, without the time between its sessions.
        epsilon: the price of the first `priced` steps: never less than what has been charged.
    """

    trainer: Trainer
    ledger: Ledger | None
    folder: RunFolder
    view: View
    observer: Observer | None
    steps_lost: int
    begin: float
    accuracy: float | None = None
    epsilon: float = 0.0
    priced: int = 0
    saved_at: float = field(default_factory=time.monotonic)

    def take_steps(self, end: int) -> None:
        """Take the steps up to `end`; a checkpoint is kept of them, also where they end early."""
        try:
            self.trainer.run(self.after_step, until=end)
        except BaseException:
            # Ctrl-C included: whatever was learnt since the last checkpoint is worth keeping.
            with contextlib.suppress(RunError):
                self.checkpoint()
            raise
        self.trainer.group.broadcast(self.checkpoint)

    def after_step(self, done: int) -> None:
        """Called by the loop with the number of steps done."""
        if self.ledger is None:
            return
        plan, every = self.trainer.plan, self.trainer.config.evaluate_every
        if self.ledger.steps_charged > self.priced:
            self.priced = self._end_of_window(self.ledger.steps_charged)
            self.epsilon = plan.epsilon_after(self.priced)
        if done % every == 0 and done < plan.steps:
            if not plan.is_private or self.trainer.config.exact_figures:
                self._evaluate()
            # These weights have seen the steps taken; what is charged ahead comes later.
            append_metrics(
                self.folder.path,
                step=done,
                epsilon=plan.epsilon_after(self._end_of_window(done)),
                val_accuracy=self.accuracy,
                seconds=time.monotonic() - self.begin,
            )
        if time.monotonic() - self.saved_at > CHECKPOINT_SECONDS:
            self.checkpoint()
        if self.observer is not None:
            self.observer(done, plan.steps, self.epsilon, self.accuracy)

    def _end_of_window(self, step: int) -> int:
        plan = self.trainer.plan
        window = max(self.trainer.config.evaluate_every, plan.steps // _PRICES_PER_RUN)
        return min(plan.steps, math.ceil(step / window) * window)

    def checkpoint(self) -> None:
        """Write what a resumed run goes on from; in the process that leads."""
        if self.ledger is None:
            return
        state = self.trainer.state
        progress = Progress(state.step, self.steps_lost, round(time.monotonic() - self.begin, 3))
        path, optimizer_state = self.folder.checkpoint_path, state.optimizer.state_dict()
        write_checkpoint(path, state.model, state.average, optimizer_state, progress)
        self.saved_at = time.monotonic()

    def _evaluate(self) -> None:
        """Measure the accuracy of the averaged weights on the validation split, exactly: not covered."""
        model, average = self.trainer.state.model, self.trainer.state.average
        current = {name: p.detach().clone() for name, p in model.named_parameters()}
        try:
            model.load_state_dict(average, strict=False)
            task = self.folder.task
            self.accuracy = evaluate_exactly(task, self.view.score(model, "val")).get(task.headline)
        finally:
            model.load_state_dict(current, strict=False)
