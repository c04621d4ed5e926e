"""Who a guarantee speaks of: single nodes, or persons with several nodes.

Sentences are written once, about nodes and their rows. Where persons are protected, a row is a person's: the
phrases below, and no others, then have another form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

_Value = TypeVar("_Value")

# Longer phrases come first. Words that are not listed are the same for both: "row", which is defined below,
# and nodes as what a model predicts for.
_OF_PERSONS: tuple[tuple[str, str], ...] = (
    (
        "A node's row: its features, its label and its list, which is the other ends of the edge records it "
        "owns. In an undirected graph these are its neighbours.",
        "A person's row: the features, the labels and the lists of all their nodes. A list is the other ends "
        "of the edge records that a node owns; in an undirected graph, its neighbours. Records between nodes "
        "of one person are dropped. Whose a node is, is public.",
    ),
    (
        "A node's row: its features, its label and the edge records it owns.",
        "A person's row: the features, the labels and the edge records of all their nodes. Whose a node is, "
        "is public.",
    ),
    (
        "one node: its features, its label and the edge records it owns",
        "one person: the features, the labels and the edge records of all their nodes",
    ),
    (
        "What belongs to one node: its features, its label and the edge records it owns. To empty a row",
        "What belongs to one person: the features, the labels and the edge records of all their nodes. To "
        "empty a row",
    ),
    (
        "Every labelled training row casts one ballot of norm 1 onto the places it lists, so emptying a row "
        "moves a board by at most 1. Given the boards, every training example is a function of one row",
        "What the labelled training nodes of a person cast onto the places they list is added up and cut to "
        "norm 1, so emptying a person's row moves a board by at most 1. Given the boards, "
        "every training example, which is one person's, is a function of that row",
    ),
    (
        "every labelled training row casts one ballot of norm 1 onto the places it lists",
        "every person's labelled training nodes cast ballots, together of norm 1, onto the places they list",
    ),
    (
        "every row casts one ballot of norm 1 onto the places it lists",
        "every person's nodes cast ballots, together of norm 1, onto the places they list",
    ),
    (
        "What one training row adds to the places it lists: its label, with norm 1 in all",
        "What one person's training nodes add to the places they list: their labels, with norm 1 in all",
    ),
    (
        "every training node joins the batch independently",
        "every person with a training node joins the batch independently",
    ),
    ("training nodes, drawn without replacement", "persons with a training node, drawn without replacement"),
    (
        "The gradient of each is clipped.",
        "The gradients of a person's training nodes are summed, and the sum is clipped.",
    ),
    (
        "every labelled row of the validation and test splits, and no training row, moves",
        "every person with labelled nodes in the validation and test splits, and no training node, moves",
    ),
    ("every training row moves", "every person with a training node moves"),
    (
        "A labelled row of the validation or test split moves",
        "All labelled nodes of a person in the validation and test splits together move",
    ),
    (
        "Such rows do not pay for training, so this fits into the same epsilon: a row of these splits pays",
        "Such persons do not pay for training, so this fits into the same epsilon: a person of these splits "
        "pays",
    ),
    ("the row of one node emptied", "the row of one person emptied, all their nodes together"),
    ("for every single node", "for every single person"),
    ("about each single node", "about each single person"),
    ("one node's row", "one person's row"),
    (
        "The identifiers of the nodes, which of them are in the training split and so how many,",
        "The identifiers of the nodes, whose each is, which of them are in the training split, and so how "
        "many persons have a training node,",
    ),
    ("the tree of one training node", "the training trees of one person"),
    ("A training tree is everything that the loss of one training node reads.", "No tree reads an edge."),
    ("The gradient of each tree is clipped", "The gradients of a person are summed and clipped"),
    ("even if a node is removed together", "even if a person is removed together"),
    ("Removing a node with every record", "Removing a person with every record"),
    ("The rows of validation and test nodes", "Validation and test nodes"),
    ("Two rows emptied together", "Two persons emptied together"),
    ("One training label changed", "One training label of one node changed"),
    ("A row of the validation or test split", "A person of the validation or test split"),
    ("A row of no split", "A person of no split"),
    ("epsilon, one node", "epsilon, one person"),
    ("epsilon, two nodes", "epsilon, two persons"),
    ("epsilon, two rows", "epsilon, two persons"),
    ("epsilon, group of two", "epsilon, two persons"),
    ("epsilon, an evaluated row", "epsilon, an evaluated person"),
    ("epsilon, a row of no split", "epsilon, a person of no split"),
    ("tables that one evaluated row is counted in, m", "tables that one evaluated person is counted in, m"),
    ("training nodes, N", "persons with a training node, N"),
    ("guesses whether one row is empty", "guesses whether one person's row is empty"),
    ("guess whether one row is empty", "guess whether one person's row is empty"),
    ("a guess about one row", "a guess about one person"),
    ("one row emptied; identifiers", "one person's row emptied, all their nodes; identifiers"),
    ("one training node's gradient", "one person's gradient"),
    ("what the weights show about one node", "what the weights show about one person"),
    ("how much one row can change", "how much one person can change"),
    ("How much one row can change", "How much one person can change"),
    ("if one row were empty", "if one person's row were empty"),
    ("differ in one emptied row", "differ in one emptied person"),
    ("What one row can move", "What one person can move"),
    ("One row", "One person"),
    ("node-level differential privacy", "person-level differential privacy"),
    ("tests whether one row is there", "tests whether one person is there"),
    ("who may know every other row", "who may know every other person's row"),
    ("counts of validation and test rows", "counts of validation and test nodes"),
    ("It allows a row to be published", "It allows a person to be published"),
)
_FORMS = dict(_OF_PERSONS)
_PHRASES = re.compile("|".join(re.escape(phrase) for phrase, _ in _OF_PERSONS))


def speak(value: _Value, protects: str) -> _Value:
    """A text about a guarantee in the words of who is protected, "node" or "person".

    The same for all texts in JSON values, whose keys stay as they are, and in dataclasses.
    """
    if protects != "person":
        return value
    spoken: Any = value
    if isinstance(value, str):
        spoken = _PHRASES.sub(lambda phrase: _FORMS[phrase.group()], value)
    elif isinstance(value, Mapping):
        spoken = {key: speak(each, protects) for key, each in value.items()}
    elif isinstance(value, (list, tuple)):
        spoken = type(value)(speak(each, protects) for each in value)
    elif is_dataclass(value) and not isinstance(value, type):
        spoken = replace(value, **{f.name: speak(getattr(value, f.name), protects) for f in fields(value)})
    return cast(_Value, spoken)
