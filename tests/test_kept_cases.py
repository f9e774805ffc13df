"""The cases that stand for all of a test."""

from itertools import product
from types import SimpleNamespace

from kept_cases import most_different


def cases(*sizes):
    """Return the cases of a test of parameters with so many values each."""
    return [
        SimpleNamespace(callspec=SimpleNamespace(indices=dict(enumerate(values))))
        for values in product(*map(range, sizes))
    ]


def test_as_many_as_the_longest_parameter_has_values_have_every_value():
    of_all = cases(4, 2, 3)
    kept = most_different(of_all, 4)
    values = [set(column) for column in zip(*(case.callspec.indices.values() for case in kept), strict=True)]
    assert values == [{0, 1, 2, 3}, {0, 1}, {0, 1, 2}]


def test_no_more_are_kept_than_there_are_and_none_twice():
    of_all = cases(2, 2)
    kept = most_different(of_all, 9)
    assert len(kept) == 4
    assert {id(case) for case in kept} == {id(case) for case in of_all}
    assert most_different(of_all, 0) == []
    alone = SimpleNamespace()  # a test without parameters
    assert most_different([alone], 1) == [alone]
