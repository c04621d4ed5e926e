"""Numbers as text: privacy figures are rounded up."""

from __future__ import annotations

import math

import pytest

from hushgraph._text import digits_up, rounded_up, split_list
from hushgraph.errors import InputError
from hushgraph.privacy.plans import json_number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (12.0, "12.00"),
        (11.981, "11.99"),
        (11.990000001, "12.00"),
        (1e6 + 0.001, "1000000.01"),
        (0.12345, "0.124"),
        (0.9991, "1.00"),
        (0.999, "0.999"),
        (0.00012341, "0.000124"),
        (math.inf, "infinity"),
    ],
)
def test_epsilon_is_rounded_up(value: float, text: str) -> None:
    assert rounded_up(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0996e-6, "1.0996e-6"),
        (1e-15, "1e-15"),
        (0.5, "0.5"),
        (2.0, "2"),
        (1 / 3, "0.33334"),
        (32.0, "32"),
    ],
)
def test_digits_are_rounded_up(value: float, text: str) -> None:
    assert digits_up(value) == text
    assert float(text) >= value


def test_json_has_no_infinity() -> None:
    assert (json_number(math.inf), json_number(2.5)) == ("inf", 2.5)


def test_a_list_with_the_end_of_a_line_is_refused_unless_quoted() -> None:
    assert split_list('a,"b\rc"') == ["a", "b\rc"]
    with pytest.raises(InputError, match="holds the end of a line; put a value that does in double quotes"):
        split_list("a\rb,c")
