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
    coordinate descent and proves how close it came (Blondel, Seki and Uehara, "Block coordinate descent
    algorithms for large-scale sparse multiclass classification", Machine Learning 93, 2013). With weights
    on the samples the mean of the losses is the weighted one.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        Strength of the penalty; larger means fewer features. It may be 0 if `ridge` is not. ``"auto"`` is 0,
        for accuracy: a ridge alone. The defaults of `loss`, `ridge`, `fit_intercept` and `tol` depend on it.
    loss : {"squared_hinge", "multitask_squared_hinge", "huber_hinge", "log_loss", \
"multilabel_ranking"}, optional
        By default every class against the rest, ``"multitask_squared_hinge"``; with a number as `alpha`
        every class against every other, ``"squared_hinge"``.
        With scores ``s``: ``Σ_{r≠y} max(1 - s_y + s_r, 0)²``, every class against every other;
        ``max(1 - s_y, 0)² + Σ_{r≠y} max(1 + s_r, 0)²``, every class against the rest;
        ``Σ_{r≠y} h(1 - s_y + s_r)``, the squared hinge with a straight line beyond the margin 1;
        ``log Σ_r exp(s_r - s_y)``, multinomial logistic regression. Where a sample has a set Y of labels:
        ``Σ_{p∈Y, r∉Y} max(1 - (s_p - s_r), 0)²`` (multilabel ranking), every label against every class that
        is none; or the multitask loss, ``Σ_{p∈Y} max(1 - s_p, 0)² + Σ_{r∉Y} max(1 + s_r, 0)²``.
    penalty : {"l1/l2", "l1", "l1/linf", "sparse_group"}, default="l1/l2"
        Of the weights ``W_j`` that a feature has for the classes: ``‖W_j‖₂`` keeps a feature for all
        classes or none, ``‖W_j‖₁`` every weight for itself, ``‖W_j‖_∞`` is as the first with weights of
        one size, ``l1_ratio ‖W_j‖₁ + (1 - l1_ratio) ‖W_j‖₂`` keeps few features, each for few classes.
    l1_ratio : float or None, default=None
        From 0 to 1, for the penalty ``"sparse_group"`` only; None is 0.5 there.
    ridge : float, optional
        Strength of the squared norm of the weights, which shrinks them and removes none. By default 1 over
        the number of samples, as ``LinearSVC(C=1)``, for ``log_loss`` a tenth of it, and with a number as
        `alpha` 0.
    fit_intercept : bool, optional
        Add an unpenalised constant for every class; by default if `alpha` is ``"auto"``.
    tol : float, optional
        Stop when the relative gap between the bounds of the optimum is this small. By default 0.1, below
        which accuracy no longer changes; with a number as `alpha` 1e-3.
    max_passes : int, default=100
        Most passes over the data.
    random_state : int, RandomState or None, default=0
        Orders the updates. Equal seeds give equal models, bit for bit, with any number of workers.
    memory_limit : int, str or None, default=None
        Bytes, or a text such as ``"2GB"``, that training may add to what is in memory already; None is
        half of what the container may use.
    engine : Engine, distributed.Client, str or None, default=None
        Runs the parts; None is threads, one per processor. A client or the address of a Dask scheduler has a
        cluster make the passes over samples that do not fit into memory; what fits stays in this process.
    class_weight : dict, "balanced" or None, default=None
        Weight of each label, or inversely proportional to how often it occurs; not for sets of labels.
    step : {"line_search", "constant"}, default="line_search"
        How far to go in each update.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        For sets of labels the columns of the indicator array that `fit` was given and `predict` returns.
    coef_ : scipy.sparse.csr_array of shape (n_classes, n_features)
        Weights, also for two classes one row for each; made anew on every access.
    intercept_ : array of shape (n_classes,)
    objective_ : float
    certificate_ : Certificate
        ``lower <= optimum <= upper`` and their relative ``gap``.
    n_iter_ : int
        Sweeps of the solver over its working set.
    n_passes_ : float
        Passes over the data: entries read, in units of all entries.
    history_ : list of dict
        Figures of every pass.
    n_features_in_ : int
    feature_names_in_ : array of shape (n_features,)
        Only when the data was a frame whose column names are all strings.
    model_ : Model
        What `save` writes.
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
        # scikit-learn's checks ask for scores that no plane through the origin reaches on their data.
        learner = self.learner()
        assert isinstance(learner, SparseLearner)
        tags.classifier_tags.poor_score = not learner.fits_intercept
        loss = learner.loss_name
        tags.classifier_tags.multi_label = loss in LOSSES and LOSSES[loss].takes_sets
        return tags
