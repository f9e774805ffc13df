"""Every loss with every penalty through the whole solver, against optima of a conic solver.

The optima were computed once with CLARABEL through cvxpy, from the definitions in `dense`; they agree with
`fista` there to 1e-9. Those of `huber_hinge` are of `fista`.
"""

import copy

import numpy as np
import pytest
from dense import fista, loss_and_gradient, objective_value
from instances import N_CLASSES, dataset_of, whole_instance
from sparse_runs import solve

from bigmc.engine import ThreadEngine
from bigmc.errors import ModelError
from bigmc.kernels.linear.arguments import Norm
from bigmc.kernels.linear.penalties import formulas
from bigmc.objectives import LOSSES, PENALTIES

LABEL_LOSSES = [name for name, loss in LOSSES.items() if loss.takes_labels]
LIMIT = 10**9
RATIO = 0.3  # of the sparse groups

#: Instance, alpha, ridge, intercept → loss → optima with l1/l2, l1, l1/linf, sparse_group.
OPTIMA = {
    ("iris", 0.02, 0.0, False): {
        "squared_hinge": (0.6546311419, 0.7611277989, 0.5212230014, 0.7022184451),
        "multitask_squared_hinge": (1.4511278068, 1.6015602603, 1.3052803608, 1.5145113635),
        "log_loss": (0.8398047916, 0.9050439101, 0.7404291003, 0.8755558265),
        "huber_hinge": (0.6535032919, 0.7597766103, 0.5200308035, 0.7011282376),
    },
    ("arith", 0.02, 0.0, False): {
        "squared_hinge": (2.1423989749, 2.2279047796, 2.0679315035, 2.1771632481),
        "multitask_squared_hinge": (3.0754254145, 3.2037173647, 2.9999403096, 3.1223892484),
        "log_loss": (1.3061062790, 1.3406224503, 1.2407224150, 1.3237075178),
    },
    ("arith", 0.01, 0.03, False): {
        "squared_hinge": (2.1775892991, 2.2203321968, 2.1562723034, 2.1920779059),
        "multitask_squared_hinge": (3.1251096445, 3.1853139983, 3.0976548085, 3.1445508814),
        "log_loss": (1.3031744976, 1.3249953816, 1.2882334686, 1.3115306604),
    },
    ("iris", 0.02, 0.01, True): {
        "squared_hinge": (0.6769531079, 0.7353090598, 0.6304213940, 0.6972110460),
        "multitask_squared_hinge": (1.5167372898, 1.5896723173, 1.4642726423, 1.5422939044),
        "log_loss": (0.8838162845, 0.9229511587, 0.8522571189, 0.8982652648),
    },
}
NAMES = ("l1/l2", "l1", "l1/linf", "sparse_group")
CASES = [
    (case, loss, penalty, optimum)
    for number, (case, by_loss) in enumerate(OPTIMA.items())
    for loss, optima in by_loss.items()
    for j, (penalty, optimum) in enumerate(zip(NAMES, optima, strict=True))
    if loss == "huber_hinge" or (number + j // 2) % 2 == 0  # each pair is in half of the cases
]


class Memory:
    """A checkpoint that keeps every save and can start from any of them."""

    def __init__(self, *saved):
        self.saved = list(saved)

    def save(self, meta, arrays):
        self.saved.append((copy.deepcopy(meta), {name: array.copy() for name, array in arrays.items()}))

    def load(self):
        return self.saved[-1] if self.saved else None


def bits(solution):
    arrays = (solution.features, solution.coef, solution.intercept)
    figures = (solution.objective, solution.certificate, solution.n_passes, solution.n_iter)
    return [array.tobytes() for array in arrays], figures


def options_of(penalty, **more):
    ratio = RATIO if penalty == "sparse_group" else None
    return {"penalty": penalty, "l1_ratio": ratio, "memory_limit": LIMIT} | more


def test_every_pair_is_in_the_table():
    assert {(loss, penalty) for _, loss, penalty, _ in CASES} == {
        (a, b) for a in LABEL_LOSSES for b in PENALTIES
    }
    assert {case for case, *_ in CASES} == set(OPTIMA)


@pytest.mark.exhaustive(keep=14)
@pytest.mark.parametrize(("case", "loss", "penalty", "optimum"), CASES, ids=str)
def test_reference_optima(case, loss, penalty, optimum):
    name, alpha, ridge, intercept = case
    X, y, unit = whole_instance(name)
    alpha, ridge = unit * alpha, unit**2 * ridge
    options = options_of(penalty, loss=loss, alpha=alpha, ridge=ridge, fit_intercept=intercept)
    found = solve(dataset_of(X, y, N_CLASSES[name]), tol=3e-7, **options)
    assert found.certificate.gap <= 3e-7
    assert abs(found.objective - optimum) <= 1e-6
    W = np.zeros((X.shape[1], N_CLASSES[name]))
    W[found.features] = found.coef
    value = objective_value(loss, penalty, X, y, W, found.intercept, alpha, ridge, RATIO)
    assert value == pytest.approx(found.objective, rel=1e-12)
    for entry in found.history:
        assert entry["lower"] <= optimum + 1e-9
        assert entry["objective"] >= optimum - 1e-9
    if not intercept:  # its steps come between the sweeps, at the end only up to the tolerance
        assert np.diff([entry["objective"] for entry in found.history]).max(initial=0) <= 1e-12


@pytest.mark.parametrize(
    ("loss", "penalty", "optimum"),
    [
        ("squared_hinge", "l1", 1.5726439838),
        ("log_loss", "l1/linf", 1.1032505754),
        ("multitask_squared_hinge", "l1/l2", 1.6492628331),
        ("multitask_squared_hinge", "sparse_group", 2.0452268622),
    ],
)
def test_reference_optima_of_digits(loss, penalty, optimum):
    X, y, unit = whole_instance("digits")
    found = solve(dataset_of(X, y), loss=loss, alpha=0.05 * unit, tol=3e-7, **options_of(penalty))
    assert found.certificate.gap <= 3e-7
    assert abs(found.objective - optimum) <= 1e-6


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LABEL_LOSSES)
def test_weights_vanish_from_the_largest_dual_norm_at_zero_on(loss, penalty):
    X, y, _ = whole_instance("arith")
    m = N_CLASSES["arith"]
    gradient = loss_and_gradient(loss, X, y, np.zeros((X.shape[1], m)), 0, np.ones(len(y)))[1]
    code = Norm(PENALTIES[penalty].code, RATIO if penalty == "sparse_group" else PENALTIES[penalty].l1_ratio)
    top = max(formulas.dual_norm(code, g) for g in gradient)
    dataset = dataset_of(X, y, m)
    above = solve(dataset, loss=loss, alpha=top * (1 + 1e-9), tol=1e-9, **options_of(penalty))
    assert len(above.features) == 0
    assert above.certificate.gap < 1e-12
    below = solve(dataset, loss=loss, alpha=top * (1 - 1e-4), tol=1e-12, max_passes=9, **options_of(penalty))
    assert len(below.features) > 0


@pytest.mark.parametrize(("loss", "penalty"), [("log_loss", "l1/l2"), ("multitask_squared_hinge", "l1")])
def test_constant_steps(loss, penalty):
    X, y, unit = whole_instance("arith")
    options = options_of(penalty, loss=loss, alpha=0.02 * unit, tol=1e-7, max_passes=1000)
    found = solve(dataset_of(X, y, N_CLASSES["arith"]), step="constant", **options)
    optimum = OPTIMA["arith", 0.02, 0.0, False][loss][NAMES.index(penalty)]
    assert abs(found.objective - optimum) <= 1e-6


@pytest.mark.parametrize("loss", LABEL_LOSSES)
def test_without_a_penalty_the_ridge_is_enough(loss):
    X, y, unit = whole_instance("iris")
    ridge = 0.05 * unit**2
    found = solve(dataset_of(X, y), loss=loss, alpha=0.0, ridge=ridge, tol=1e-7, memory_limit=LIMIT)
    assert found.certificate.gap <= 1e-7
    assert found.objective == pytest.approx(fista(loss, "l1/l2", X, y, 3, 0.0, ridge), rel=3e-7)


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize(
    ("loss", "penalty"), [("log_loss", "sparse_group"), ("multitask_squared_hinge", "l1/linf")]
)
@pytest.mark.parametrize("intercept", [False, True])
def test_a_weight_of_two_is_the_sample_twice(loss, penalty, intercept):
    X, y, unit = whole_instance("iris")
    weights = 1.0 + (np.arange(len(y)) % 3 == 0)
    repeats = weights.astype(int)
    strengths = {"alpha": 0.05 * unit, "ridge": 0.01 * unit**2}
    options = options_of(penalty, loss=loss, tol=1e-8, fit_intercept=intercept, **strengths)
    weighted = solve(dataset_of(X, y), sample_weight=weights, **options)
    doubled = solve(dataset_of(np.repeat(X, repeats, axis=0), np.repeat(y, repeats)), **options)
    assert weighted.objective == pytest.approx(doubled.objective, rel=3e-8)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(
    ("loss", "penalty"),
    [("log_loss", "l1/linf"), ("multitask_squared_hinge", "l1/l2"), ("squared_hinge", "l1")],
)
def test_in_chunks_stopped_and_resumed_by_any_number_of_workers(loss, penalty):
    X, y, unit = whole_instance("arith")
    dataset = dataset_of(X, y, N_CLASSES["arith"], shard_rows=20)
    strengths = {"alpha": 0.02 * unit, "ridge": 1e-3 * unit**2}
    options = options_of(penalty, loss=loss, tol=1e-2, fit_intercept=True, chunk_bytes=5000, **strengths)
    kept = Memory()
    whole = solve(dataset, checkpoint=kept, engine=ThreadEngine(1), **options)
    assert whole.plan is None
    assert whole.certificate.gap <= 1e-2
    assert len(kept.saved) >= 3
    for saved in (kept.saved[0], kept.saved[-2]):
        assert bits(solve(dataset, checkpoint=Memory(saved), engine=ThreadEngine(2), **options)) == bits(
            whole
        )
    for changed in ({"ridge": 2e-3 * unit**2}, {"penalty": "sparse_group", "l1_ratio": 0.7}):
        with pytest.raises(ModelError, match=next(iter(changed))):
            solve(dataset, checkpoint=Memory(kept.saved[0]), **(options | changed))


@pytest.mark.exhaustive(keep=2)
@pytest.mark.slow
@pytest.mark.parametrize("loss", LABEL_LOSSES)
def test_single_precision_scores(loss, monkeypatch):
    monkeypatch.setattr("bigmc.solvers.sparse.memory_plan.SMALL_SCORES", 0)
    X, y, unit = whole_instance("iris")
    found = solve(dataset_of(X, y), loss=loss, alpha=0.02 * unit, tol=1e-4, **options_of("l1"))
    assert found.plan.score_dtype == np.float32
    optimum = OPTIMA["iris", 0.02, 0.0, False][loss][1]
    assert found.certificate.lower <= optimum * (1 + 1e-7)
    assert -1e-6 * optimum <= found.objective - optimum <= 1e-4 * optimum
