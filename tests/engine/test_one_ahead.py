"""One part is made ahead of the one in use, in their order, and never two."""

import threading

import pytest

from bigmc.engine import ThreadEngine, one_ahead


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_parts_come_in_their_order(n_threads):
    assert list(one_ahead(ThreadEngine(n_threads), str, range(7))) == list("0123456")
    assert list(one_ahead(ThreadEngine(n_threads), str, [])) == []


def test_the_next_one_is_made_while_one_is_in_use_and_no_other():
    began = [threading.Event() for _ in range(4)]

    def make(number):
        began[number].set()
        return number

    for number in one_ahead(ThreadEngine(2), make, range(4)):
        if number < 3:
            assert began[number + 1].wait(10)  # while this one is in use
        if number < 2:
            assert not began[number + 2].wait(0.05)


def test_what_fails_is_raised_in_its_turn():
    def make(number):
        return 6 // (2 - number)

    made = one_ahead(ThreadEngine(2), make, range(4))
    assert [next(made), next(made)] == [3, 6]
    with pytest.raises(ZeroDivisionError):
        next(made)


def test_parts_run_on_the_calling_thread_where_there_is_one():
    threads = list(one_ahead(ThreadEngine(1), lambda _: threading.current_thread(), range(3)))
    assert set(threads) == {threading.current_thread()}
