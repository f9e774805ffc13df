"""The sparse multiclass linear classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bigmc.engine import EngineLike
from bigmc.estimators.linear import LinearMixin
from bigmc.estimators.weights import WeightedClassifier
from bigmc.learners.sparse import SparseLearner
from bigmc.objectives import LOSSES


class SparseClassifier(LinearMixin, WeightedClassifier):
    """Multiclass linear classifier that selects features for all classes at once.

    Minimises ``F(W) = (1/n) Σ_i loss(Wᵀx_i, y_i) + alpha Σ_j penalty(W_j) + ridge/2 ‖W‖²`` by block
    coordinate descent and certifies the gap (Blondel, Seki and Uehara, "Block coordinate descent
    algorithms for large-scale sparse multiclass classification", Machine Learning 93, 2013). With sample
    weights the loss is the weighted mean.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        Strength of the penalty; larger means fewer features. It may be 0 if `ridge` is not. ``"auto"`` is 0:
        a ridge only, for accuracy. The defaults of `loss`, `ridge`, `fit_intercept` and `tol` depend on it.
    loss : {"squared_hinge", "multitask_squared_hinge", "huber_hinge", "log_loss", \
"multilabel_ranking"}, optional
        By default ``"multitask_squared_hinge"``, every class against the rest; if `alpha` is a number,
        ``"squared_hinge"``, every class against every other. The losses, in the order above,
        with scores ``s``: ``Σ_{r≠y} max(1 - s_y + s_r, 0)²``, every class against every other;
        ``max(1 - s_y, 0)² + Σ_{r≠y} max(1 + s_r, 0)²``, every class against the rest;
        ``Σ_{r≠y} h(1 - s_y + s_r)``, the squared hinge with linear tails;
        ``log Σ_r exp(s_r - s_y)``, multinomial logistic regression. For samples with sets Y of labels:
        ``Σ_{p∈Y, r∉Y} max(1 - (s_p - s_r), 0)²`` (multilabel ranking), every label against every other
        class; or the multitask loss, ``Σ_{p∈Y} max(1 - s_p, 0)² + Σ_{r∉Y} max(1 + s_r, 0)²``.
    penalty : {"l1/l2", "l1", "l1/linf", "sparse_group"}, default="l1/l2"
        Penalty of the weights ``W_j`` of a feature for the classes: ``‖W_j‖₂`` selects a feature for all
        classes or none, ``‖W_j‖₁`` selects single weights, ``‖W_j‖_∞`` is like the first with weights of
        equal size, ``l1_ratio ‖W_j‖₁ + (1 - l1_ratio) ‖W_j‖₂`` selects few features, each for few classes.
    l1_ratio : float or None, default=None
        Share of the l1 norm, from 0 to 1, only for the penalty ``"sparse_group"``; None means 0.5.
    ridge : float, optional
        Strength of the squared norm of the weights, which shrinks them but selects none. By default 1 over
        the number of samples, as in ``LinearSVC(C=1)``, for ``log_loss`` a tenth of that; 0 if `alpha` is a
        number.
    fit_intercept : bool, optional
        Add an unpenalised constant for every class; the default if `alpha` is ``"auto"``.
    tol : float, optional
        Stop when the relative gap between the bounds of the optimum is this small. By default 0.1, below
        which accuracy no longer changes; 1e-3 if `alpha` is a number.
    max_passes : int, default=100
        Maximum number of passes over the data.
    random_state : int, RandomState or None, default=0
        Orders the updates. Equal seeds give equal models, bit for bit, for any number of workers.
    memory_limit : int, str or None, default=None
        Bytes, or a text such as ``"2GB"``, that training may add to the memory already in use; None is
        half of the container's memory.
    engine : Engine, distributed.Client, str or None, default=None
        Runs the parts; None is one thread per processor. With a client or the address of a Dask scheduler, a
        cluster makes the passes over samples that do not fit into memory; other data stays in this process.
    class_weight : dict, "balanced" or None, default=None
        Weight of each label; ``"balanced"`` is inversely proportional to its frequency. Not for label sets.
    step : {"line_search", "constant"}, default="line_search"
        Step size of each update.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        For label sets, the columns of the indicator array in `fit` and `predict`.
    coef_ : scipy.sparse.csr_array of shape (n_classes, n_features)
        Weights, one row per class, even for two classes; computed at every access.
    intercept_ : array of shape (n_classes,)
    objective_ : float
    certificate_ : Certificate
        ``lower <= optimum <= upper`` and their relative ``gap``.
    n_iter_ : int
        Sweeps of the solver over its working set.
    n_passes_ : float
        Passes over the data: entries read divided by all entries.
    history_ : list of dict
        Figures of every pass. ``violation`` is the largest of the conditions of optimality at the weights;
        where data does not fit into memory, features that are no candidates have theirs, or a bound of it,
        at the dual point of the certificate.
    n_features_in_ : int
    feature_names_in_ : array of shape (n_features,)
        Only if the data was a frame whose column names are all strings.
    model_ : Model
        The model that `save` writes.
    """

    learner_type = SparseLearner

    def __init__(
        self,
        alpha: float | str = "auto",
        *,
        loss: str | None = None,
        penalty: str = "l1/l2",
        l1_ratio: float | None = None,
        ridge: float | None = None,
        fit_intercept: bool | None = None,
        tol: float | None = None,
        max_passes: int = 100,
        random_state: int | np.random.RandomState | None = 0,
        memory_limit: int | str | None = None,
        engine: EngineLike = None,
        class_weight: Mapping[Any, float] | str | None = None,
        step: str = "line_search",
    ) -> None:
        self.alpha = alpha
        self.loss = loss
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_passes = max_passes
        self.random_state = random_state
        self.memory_limit = memory_limit
        self.engine = engine
        self.class_weight = class_weight
        self.step = step

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # scikit-learn's checks require scores that no hyperplane through the origin reaches on their data.
        learner = self.learner()
        assert isinstance(learner, SparseLearner)
        tags.classifier_tags.poor_score = not learner.fits_intercept
        loss = learner.loss_name
        tags.classifier_tags.multi_label = loss in LOSSES and LOSSES[loss].takes_sets
        return tags
