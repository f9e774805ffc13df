"""Every solver takes the steps that it took: a change of any rule on the way is noticed, and meant or not.

The numbers are recorded to more digits than the rounding of another processor reaches, and every bit of what
is left in the end for kinds of processors that it was recorded on. After a change that is meant to change
them, run `python -m golden.record` in `tests/`.
"""

import json

import pytest
from courses import GROUPS, RECORDED, course_digests, course_steps
from golden.record import recorded_here

#: Rounding changes the course of first-order steps, and linear programs have several solutions.
NOT_ELSEWHERE = ("minimax",)


@pytest.mark.parametrize("group", GROUPS)
def test_every_solver_gets_there_as_it_did(group):
    if group in NOT_ELSEWHERE:
        recorded_here()  # or the test is skipped
    recorded, steps = json.loads(RECORDED.read_text())[group], course_steps(group)
    assert list(steps) == list(recorded)
    for name, own in steps.items():
        for number, (step, numbers) in enumerate(zip(own, recorded[name], strict=False)):
            expected = dict(zip(step, numbers, strict=True))
            assert step == pytest.approx(expected, rel=1e-5, abs=1e-9), f"step {number} of {name}"
        assert len(own) == len(recorded[name]), name


@pytest.mark.parametrize("group", GROUPS)
def test_every_solver_leaves_the_bits_that_it_left(group):
    assert course_digests(group) == recorded_here()["courses"][group]
