"""Answers of learners by slot, against answers kept in a dictionary."""

import numpy as np
import pytest

from bigmc.budget import MemoryLimitError
from bigmc.kernels.boosting.arguments import Weighted
from bigmc.solvers.boosting.predictions import BitResponses, RowResponses

N, N_CLASSES = 150, 3


def answer_of(kind, chosen):
    """Return an answer that is 1 on the chosen samples, as responses of a kind take it."""
    if kind is RowResponses:
        return np.flatnonzero(chosen).astype(np.int32)
    bits = np.zeros(3 * 64, np.uint8)
    bits[:N] = chosen
    return np.packbits(bits, bitorder="little").view(np.uint64)


def read(responses, slot):
    """Return what a slot answers on every sample."""
    scores = np.zeros((N_CLASSES, responses.n_padded))
    one = Weighted(np.array([slot]), np.ones(1, np.int8), np.array([2]), np.ones(1))
    responses.add_scores(one, 0, scores)
    assert not scores[:2].any()
    return scores[2, :N]


@pytest.mark.parametrize("kind", [BitResponses, RowResponses])
def test_answers_stay_as_they_were_added_until_they_are_freed(kind):
    random = np.random.default_rng(0)
    responses, kept = kind(random.integers(0, N_CLASSES, N), N_CLASSES), {}
    assert (responses.n_samples, responses.n_words, responses.n_padded) == (N, 3, 192)
    assert responses.nbytes == 0
    most = 0
    for number in range(40):
        key, chosen = f"{number}".encode(), random.random(N) < random.random()
        assert responses.find(key) is None
        kept[key] = responses.add(key, answer_of(kind, chosen)), chosen
        most = max(most, *(slot for slot, _ in kept.values()))
        if number % 7 == 6:
            kept = {key: value for key, value in kept.items() if random.random() < 0.4}
            responses.keep(np.array([slot for slot, _ in kept.values()], np.int64))
        for key, (slot, chosen) in kept.items():
            assert responses.find(key) == slot
            elsewhere = 0 if kind is RowResponses else -1
            np.testing.assert_array_equal(read(responses, slot), np.where(chosen, 1, elsewhere))
        slots = np.array([slot for slot, _ in kept.values()], np.int64)
        assert len(set(slots)) == len(slots)
        assert responses.keys_of(slots) == list(kept)
        rows = sum(16 + 4 * int(chosen.sum()) for _, chosen in kept.values())
        assert responses.nbytes == (rows if kind is RowResponses else 24 * len(kept))
    assert most < 20  # freed slots are used again


@pytest.mark.parametrize("kind", [BitResponses, RowResponses])
def test_answers_take_the_bytes_they_are_given(kind):
    labels, everywhere = np.zeros(N, np.int32), np.ones(N, bool)
    each = 4 * N if kind is RowResponses else 24
    for count in (1, 5):
        responses = kind(labels, 2, max_bytes=count * each)
        for number in range(count):
            responses.add(bytes([number]), answer_of(kind, everywhere))
        with pytest.raises(MemoryLimitError):
            responses.add(b"one more", answer_of(kind, everywhere))
        responses = kind(labels, 2, max_bytes=count * each - 1)
        for number in range(count - 1):
            responses.add(bytes([number]), answer_of(kind, everywhere))
        with pytest.raises(MemoryLimitError):
            responses.add(b"the last", answer_of(kind, everywhere))


@pytest.mark.parametrize("kind", [BitResponses, RowResponses])
def test_the_learner_that_is_one_everywhere(kind):
    responses = kind(np.zeros(N, np.int32), 2)
    slot = responses.add(b"", responses.everywhere())
    scores = np.zeros((2, responses.n_padded))
    responses.add_scores(
        Weighted(np.array([slot]), np.array([-1], np.int8), np.array([1]), np.array([2.5])), 0, scores
    )
    assert (scores[1, :N] == -2.5).all()
    assert not scores[0].any()
    tail = np.zeros((2, 64))
    responses.add_scores(
        Weighted(np.array([slot]), np.array([1], np.int8), np.array([0]), np.ones(1)), 128, tail
    )
    assert (tail[0, : N - 128] == 1).all()
