"""SplitMix64 against its published first numbers and plain Python integers."""

import numpy as np

from bigmc.store.row_hash import GAMMA, mix, splitmix64, unit_interval


def test_numbers_published_with_the_generator():
    """Those of the reference implementation in C from the state 1234567 on."""
    states = (1234567 + np.arange(5, dtype=np.uint64).astype(object) * GAMMA) % 2**64
    numbers = mix(np.array([(state + GAMMA) % 2**64 for state in states], np.uint64)).tolist()
    assert numbers == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_counting_states_and_the_unit_interval():
    assert splitmix64(np.array([0], np.uint64))[0] == 0xE220A8397B1DCDAF
    values = unit_interval(splitmix64(np.arange(10_000, dtype=np.uint64)))
    assert 0 <= values.min() < 0.001 < 0.999 < values.max() < 1
