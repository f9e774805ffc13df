import numpy as np
import pytest
from kernels.test_log_columns import WIDTH, Instance
from scipy.special import softmax

from bigmc.errors import BigmcError
from bigmc.kernels.linear.arguments import GradientSums
from bigmc.objectives import PENALTIES, Curvature, objective


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


def test_the_share_of_the_l1_norm_is_for_sparse_groups():
    W = np.array([[3.0, 4.0], [0.0, 2.0]])
    for ratio, expected in ((None, 8.0), (0.0, 7.0), (0.25, 7.5), (1.0, 9.0)):
        assert objective("log_loss", "sparse_group", ratio).penalty.value(W) == expected
    for name, expected in (("l1", 9.0), ("l1/linf", 6.0)):
        assert objective("squared_hinge", name).penalty.value(W) == expected
    assert objective("log_loss", "l1", ridge=0.2).regulariser(0.1, W) == pytest.approx(0.9 + 2.9)


def test_weights_whose_squares_are_infinite_have_an_l1_norm():
    assert objective("log_loss", "l1").regulariser(0.5, np.full((1, 2), 1e200)) == 1e200


@pytest.mark.parametrize("name", PENALTIES)
def test_newton_steps_are_for_penalties_that_are_smooth_where_no_weight_is_zero(name):
    penalty = objective("log_loss", name, 0.3 if name == "sparse_group" else None).penalty
    W, direction, small = np.array([[1.0, 1.0, -0.5]]), np.array([[1.0, -1.0, 0.2]]), 1e-6
    ahead = (penalty.value(W + small * direction) - penalty.value(W)) / small
    behind = (penalty.value(W) - penalty.value(W - small * direction)) / small
    assert penalty.smooth_on_support == (abs(ahead - behind) < 1e-3)


@pytest.mark.parametrize(
    ("penalty", "ratio", "ridge", "named"),
    [
        ("l1", 0.5, 0.0, "l1_ratio does not go with penalty l1"),
        ("sparse_group", 1.5, 0.0, "l1_ratio is 1.5"),
        ("sparse_group", float("nan"), 0.0, "l1_ratio is nan"),
        ("l1/l2", None, -1.0, "ridge is -1"),
        ("l1/l2", None, float("inf"), "ridge is inf"),
    ],
)
def test_numbers_that_cannot_be_used_are_refused(penalty, ratio, ridge, named):
    with pytest.raises(BigmcError, match=named):
        objective("squared_hinge", penalty, ratio, ridge)


@pytest.mark.parametrize("n_classes", [2, 3, 8])
def test_residuals_of_two_classes_are_those_of_one_margin(n_classes):
    """The softmax of two scores has two derivatives that are one, so that a column of them is enough."""
    scores, labels = np.zeros((5, 8), np.float32), np.arange(5, dtype=np.int32)[:, None] % n_classes
    scores[:, :n_classes] = np.random.default_rng(0).normal(size=(5, n_classes))
    scores[:, n_classes:] = -1e30  # as pads have it
    log = objective("log_loss", "l1")
    width = log.residuals_width(n_classes, 8)
    assert width == (1 if n_classes == 2 else 8)
    assert objective("squared_hinge", "l1").residuals_width(n_classes, 8) == 8
    residuals = np.empty((5, width), np.float32)
    log.fill_residuals(scores, labels, residuals, None)
    probabilities = softmax(scores[:, :n_classes].astype(float), axis=1)
    halves = 0.5 * (probabilities - np.eye(n_classes)[labels[:, 0]])
    own = residuals[:, :n_classes]
    assert own == pytest.approx(halves[:, -own.shape[1] :], abs=1e-6)


@pytest.mark.parametrize(
    ("loss", "n_classes", "beside"),
    [("squared_hinge", 2, 0), ("squared_hinge", 5, 0), ("log_loss", 2, 2), ("log_loss", 5, 8)],
)
def test_residuals_replace_the_scores_unless_they_are_one_margin(loss, n_classes, beside):
    """Beside the scores of a sample there are its shares, and a residual if that is narrower than scores."""
    assert objective(loss, "l1").residuals_beside(n_classes, 8) == beside


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("loss", "per_sample"), [("squared_hinge", [8, 8]), ("log_loss", [32, 64])])
def test_newton_steps_keep_a_word_or_all_scores_of_a_sample(loss, per_sample, dtype):
    scores, kernels = np.zeros((5, 8), dtype), objective(loss, "l1/l2").row_kernels
    assert kernels.bytes_per_sample(scores) == per_sample[dtype is np.float64]
    assert kernels.workspace(scores).nbytes == 5 * kernels.bytes_per_sample(scores)


@pytest.mark.parametrize(
    ("curvature", "of_classes"), [(Curvature.LARGEST, np.max), (Curvature.MEAN, np.mean)]
)
def test_the_curvature_of_a_column_is_the_one_that_was_chosen(curvature, of_classes):
    instance = Instance(5)
    sums = GradientSums(np.zeros((9, WIDTH)), np.zeros(9))
    columns = np.arange(9), instance.entries, instance.samples, 5
    objective("log_loss", "l1").add_gradients(*columns, sums, curvature)
    X = instance.X / instance.scale
    second = (X**2 * instance.weights[:, None]).T @ (instance.P * (1 - instance.P)) / 2
    np.testing.assert_allclose(sums.curvatures, of_classes(second, axis=1), rtol=1e-10)
