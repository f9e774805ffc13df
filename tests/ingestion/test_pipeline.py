"""Threads that parts share: who helps whom, and that the order of the batches stays."""

import threading

import pytest

from bigmc.ingestion.writing.pipeline import ALONE, Crew, in_order


def test_the_fewer_parts_are_left_the_more_threads_work_on_each():
    with Crew(4, 3) as crew:
        assert (crew.n_each, crew.helpers) == (1, None)
        crew.end_part()
        assert crew.n_each == 2
        assert crew.helpers is not None
        crew.end_part()
        assert crew.n_each == 4
        crew.end_part()
        assert crew.n_each == 4
    with Crew(4, 20, 2) as crew:
        assert crew.n_each == 2


def test_one_thread_has_no_helpers_however_many_parts_end():
    for _ in range(3):
        assert (ALONE.n_each, ALONE.helpers) == (1, None)
        ALONE.end_part()


def test_a_part_gets_help_from_the_batch_on_at_which_the_others_end():
    threads = []

    def work(item):
        threads.append(threading.get_ident())
        return item * item

    with Crew(2, 2) as crew:
        squares = in_order(work, range(20), crew)
        assert [next(squares) for _ in range(5)] == [0, 1, 4, 9, 16]
        assert set(threads) == {threading.get_ident()}
        crew.end_part()
        assert list(squares) == [i * i for i in range(5, 20)]
    assert threading.get_ident() not in threads[5:]
    assert len(threads) == 20


def test_an_error_comes_where_its_item_would_have_come():
    taken = []
    with Crew(3) as crew:
        quotients = in_order(lambda i: 1 / i, (taken.append(i) or i for i in [2, 1, 0, 4, 5, 6, 7, 8]), crew)
        assert [next(quotients), next(quotients)] == [0.5, 1.0]
        with pytest.raises(ZeroDivisionError):
            next(quotients)
    assert taken[-1] <= 6  # no more than three ahead of the one that failed
