"""Every solver takes the steps that it took: a change of any rule on the way is noticed, and meant or not.

Every bit of what is left in the end is recorded for kinds of processors. After a change that is meant to
change anything of this, run `python -m golden.record` in `tests/`.
"""

import json

import pytest
from asked_courses import RUNS
from course import Course
from courses import GROUPS, RECORDED, course_digests, course_steps, courses
from golden.record import recorded_here

#: Groups whose numbers do not change with the rounding of another processor. That of single precision changes
#: the course of chunks and of first-order steps.
ANYWHERE = ("asked: boosted", "boosted", "by the dual", "on a sample", *(g for g in GROUPS if "plans" in g))


@pytest.mark.exhaustive(keep=5)
@pytest.mark.parametrize("group", GROUPS)
def test_every_solver_gets_there_as_it_did(group):
    if group not in ANYWHERE:
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


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize("group", RUNS)
def test_every_run_that_resumes_ends_as_it_did(group):
    """From a state in the middle, every bit of the model is that of the run which was not interrupted."""
    for name, run in RUNS[group].items():
        whole = courses(group)[name]
        assert run(Course(whole.saved[len(whole.saved) // 2])).result == whole.result, name
