"""Which task the settings of a run ask for: from what is declared, never from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from hushgraph._text import suggest
from hushgraph.errors import InputError
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task
from hushgraph.tasks.two_classes import TwoClasses


def choose_other_task(
    task: str, bounds: Sequence[float] | str | None, *, others: Mapping[str, object]
) -> Number | Literal["labels"] | None:
    """The task of labels that are numbers, or "labels" for sets of labels; None where they are classes.

    Args:
        task: "auto", "number", "labels" or another one.
        bounds: the lowest and the highest number, which are declared; "private" where a noisy histogram of
            the training labels gives them.
        others: settings of classes; those that are set are refused, but for the number of labels.
    """
    given = ", ".join(name for name, value in others.items() if value)
    if task == "labels" and bounds is None:
        _refuse_for_sets(others)
        return "labels"
    if task != "number" and bounds is None:
        return None
    shown = bounds if isinstance(bounds, str) or bounds is None else ",".join(map(str, bounds))
    if task not in ("auto", "number") or given:
        what = f"bounds={shown}" if bounds is not None else "task='number'"
        raise InputError(
            f"{what} with {given or f'task={task!r}'}: bounds belong to task='number', which has no "
            "classes; leave out one"
        )
    if bounds == "private":
        return Number(bounds="private")
    if bounds is None or isinstance(bounds, str) or len(bounds) != 2:
        begin = "task='number' without bounds: it" if bounds is None else f"bounds={shown}: task='number'"
        raise InputError(
            f"{begin} needs the lowest and the highest number, as 0,100, which are declared, never looked up "
            "in the data; or bounds='private', which pays for them"
        )
    return Number(low=float(bounds[0]), high=float(bounds[1]))


def check_task(task: Task, asked: str, *, others: Mapping[str, object]) -> None:
    """Refuse data whose labels are not what is asked for.

    Args:
        task: of the data, as it was read.
        asked: the setting `task`.
        others: settings of classes.
    """
    if isinstance(task, Labels):
        if asked not in ("auto", "labels"):
            raise InputError(
                f"task={asked!r}: the data has {task.question} of which a node may have several; give "
                "task='labels', or name one column as label"
            )
        _refuse_for_sets(others)
    elif asked == "labels":
        raise InputError(
            f"task='labels': the data is about {task.question}; expected sets of labels: a table with a "
            "column of lists or columns of 0 and 1, or y of shape [nodes, labels]"
        )
    elif asked == "number" and isinstance(task, Classes):
        raise InputError(f"task='number': the data is about {task.question}; leave out task and bounds")


def _refuse_for_sets(others: Mapping[str, object]) -> None:
    given = ", ".join(name for name, value in others.items() if value and name != "num_classes")
    if given:
        raise InputError(
            f"{given} with task='labels': it is for one class a node, and every label is learnt for itself; "
            "leave it out"
        )


def choose_class_task(
    num_classes: int,
    names: Sequence[str] | None,
    *,
    task: str = "auto",
    positive: str | int | None = None,
    rare: bool = False,
) -> Task:
    """The task of data whose labels are classes.

    Args:
        num_classes: how many there are, declared or assumed to be public.
        names: of the classes in order; None where they are numbers.
        task: "auto", "classes" or "binary".
        positive: name or number of the class that scores of two classes are about; the second unless given.
        rare: whether only that class casts ballots.

    Raises:
        InputError: if the settings contradict each other or the number of classes.
    """
    wants_two = task == "binary" or positive is not None or rare
    if wants_two and task == "classes":
        raise InputError("task='classes' with positive or rare: they belong to task='binary'; leave them out")
    if wants_two and num_classes != 2:
        raise InputError(
            f"task='binary': the data has {num_classes} classes; expected two; leave out task, positive and "
            "rare, or declare two classes"
        )
    if num_classes != 2 or task == "classes":
        return Classes(num_classes=num_classes)
    place = 1 if positive is None else find_class(positive, num_classes, names, setting="positive")
    return TwoClasses(positive=place, rare=rare)


def find_class(name: str | int, num_classes: int, names: Sequence[str] | None, *, setting: str) -> int:
    """The number of a class; InputError, with the nearest name, for one that is not declared."""
    known = [str(number) for number in range(num_classes)] if names is None else list(names)
    if str(name) in known:
        return known.index(str(name))
    hint = suggest(str(name), known, cutoff=0.6) or f"; expected one of {', '.join(known[:10])}"
    raise InputError(f"{setting}={name!r}: no such class{hint}")


def read_class_weights(
    weights: Mapping[str, float] | str | None, num_classes: int, names: Sequence[str] | None
) -> tuple[float, ...] | None:
    """The weight of every class, in order; None where none is given.

    Raises:
        InputError: for a weight that is not between 0 and 1, a class that is not declared, or "balanced",
            which would count labels.
    """
    if weights is None:
        return None
    if isinstance(weights, str):
        raise InputError(
            f"class_weight={weights!r}: expected a weight for each class, as other=0.02. A balanced "
            "weight would count labels, which are private; declare what you know of the classes"
        )
    values = [1.0] * num_classes
    for name, weight in weights.items():
        place = find_class(name, num_classes, names, setting="class_weight")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight <= 1:
            raise InputError(
                f"class_weight {name}={weight!r}: expected a number from 0 to 1: weights multiply clipped "
                "gradients, which may not grow"
            )
        values[place] = float(weight)
    return tuple(values)
