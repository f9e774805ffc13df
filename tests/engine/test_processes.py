"""Freed memory is returned at once, but for a process whose memory limit is far from reached."""

from types import SimpleNamespace

import pytest

from bigmc.engine import processes

ROOMY = processes.ROOMY_LIMIT


@pytest.fixture
def process(monkeypatch):
    """Resident bytes that the test sets, and how often free pages were given back."""
    state = SimpleNamespace(resident=10**8, trimmed=0)

    def give_back():
        state.trimmed += 1

    monkeypatch.setattr(processes, "current_memory", lambda: state.resident)
    monkeypatch.setattr(processes, "trim", give_back)
    return state


@pytest.mark.parametrize(
    ("limit", "growth", "is_trimmed"),
    [(0, 0, True), (ROOMY - 1, 0, True), (ROOMY, ROOMY // 4 - 1, False), (ROOMY, ROOMY // 4, True)],
)
def test_free_pages_are_given_back_from_a_quarter_of_a_roomy_limit_on(process, limit, growth, is_trimmed):
    with processes.prompt_release(limit):
        process.resident += growth
        processes.trim_if_full()
        assert process.trimmed == is_trimmed
    assert process.trimmed == is_trimmed + 1  # at the end in any case


def test_an_inner_limit_counts_until_its_work_is_done(process):
    with processes.prompt_release(ROOMY):
        with processes.prompt_release():
            processes.trim_if_full()
            assert process.trimmed == 1
        processes.trim_if_full()
        assert process.trimmed == 2  # only by the end of the inner one
