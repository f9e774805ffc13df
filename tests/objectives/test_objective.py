import numpy as np
import pytest

from bigmc.errors import BigmcError
from bigmc.objectives import objective


def test_the_pair_there_is():
    both = objective("squared_hinge", "l1/l2")
    assert (both.loss.name, both.penalty.name) == ("squared_hinge", "l1/l2")
    assert both.penalty.value(np.array([[3.0, 4.0], [0.0, 2.0]])) == 7.0


@pytest.mark.parametrize(
    ("loss", "penalty", "known"), [("hinge", "l1/l2", "squared_hinge"), ("squared_hinge", "l3", "l1/l2")]
)
def test_unknown_names_are_refused_with_the_known_ones(loss, penalty, known):
    with pytest.raises(BigmcError, match=known):
        objective(loss, penalty)
