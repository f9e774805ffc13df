"""The minimax risk classifier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bigmc.engine import EngineLike
from bigmc.errors import DataError
from bigmc.estimators.arrays import is_lazy
from bigmc.estimators.base import Classifier
from bigmc.estimators.linear import LinearMixin
from bigmc.learners.minimax import MinimaxLearner
from bigmc.model import MinimaxModel, Model
from bigmc.store.dataset import Dataset
from bigmc.store.feature_map import FeatureMap, Moments


class MinimaxRiskClassifier(LinearMixin, Classifier):
    """Multiclass classifier with the least worst-case error probability, and a bound on its error.

    Minimises ``1 − τᵀμ + φ(μ) + λᵀ|μ|``, the largest error probability over all distributions whose
    expectations of ``Φ(x, y) = e_y ⊗ ψ(x)`` are within ``λ = lambda0 s`` of their means τ over the training
    samples, s being their standard deviations (Bondugula, Mazuelas and Pérez, "Efficient large-scale
    learning of minimax risk classifiers"). For a dataset, ψ are its features: set
    ``standardize``, ``fourier`` and ``gamma`` in `bigmc.ingest` instead.

    Parameters
    ----------
    lambda0 : float or "auto", default="auto"
        Regularisation, not negative; larger means more distributions, a larger bound, fewer weights.
        Auto is ``2 / sqrt(n_samples)``, two standard errors of a mean, with which the bound usually holds;
        see `bigmc.solvers.minimax.default_lambda0`.
    fit_intercept : bool, default=True
        Add a component to ψ that is always 1.
    tol : float, default=1e-3
        Stop when the difference of the bounds, a probability, is this small.
    eps1, eps2 : float, default=1e-2 and 1e-5
        Violation above which a constraint, or a component of the feature mapping, is added to the linear
        program; tightened when nothing exceeds them while the gap is above `tol`.
    n_max, m_max : int, default=400
        Maximum number of constraints and components added per iteration.
    k_max : int, default=1000
        Maximum number of iterations.
    time_limit : float or None, default=None
        Seconds after which training stops with the best model so far, which then depends on the machine.
    standardize : bool, default=False
        For dense arrays: scale features, ``(x − mean) / deviation``.
    fourier : int, default=0
        For dense arrays: replace the standardised features by this number of random Fourier features.
    gamma : float or None, default=None
        Parameter of their Gaussian kernel; None is 1 / number of features.
    deterministic : bool, default=True
        `predict` returns the class with the largest score; otherwise it draws from `predict_proba`.
    random_state : int, RandomState or None, default=0
        Seed of the first working set and of the draws.
    memory_limit : int, str or None, default=None
        Bytes, or a text such as ``"2GB"``, that training may add to the memory already in use; None is
        half of the container's memory.
    engine : Engine, distributed.Client, str or None, default=None
        Scans the shards; None is one thread per processor. With a client or the address of a Dask scheduler,
        a cluster scans those of a dataset on disk, which its workers see, and the memory limit holds for each
        process; arrays stay in this one. Any number of workers gives the same model.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Labels of the data.
    coef_ : scipy.sparse.csr_array of shape (n_classes, n_features)
        μ, computed at every access.
    intercept_ : array of shape (n_classes,)
    lambda0_ : float
        The regularisation used.
    objective_ : float
        Worst-case error probability of `coef_`.
    certificate_ : Certificate
        ``lower <= optimum <= upper`` and their difference ``gap``; ``upper`` bounds the error probability of
        the randomised rule (that of `predict_proba`) for every distribution in the uncertainty set. The
        deterministic rule errs with at most twice that probability: where it is wrong, the randomised rule
        gives the right class a probability of at most one half.
    n_iter_ : int
        Iterations.
    n_passes_ : float
        Scans of the samples.
    history_ : list of dict
        Figures of every iteration.
    n_features_in_ : int
    feature_names_in_ : array of shape (n_features,)
        Only if the data was a frame whose column names are all strings.
    model_ : MinimaxModel
        The model that `save` writes.
    """

    learner_type = MinimaxLearner

    def __init__(
        self,
        lambda0: float | str = "auto",
        *,
        fit_intercept: bool = True,
        tol: float = 1e-3,
        eps1: float = 1e-2,
        eps2: float = 1e-5,
        n_max: int = 400,
        m_max: int = 400,
        k_max: int = 1000,
        time_limit: float | None = None,
        standardize: bool = False,
        fourier: int = 0,
        gamma: float | None = None,
        deterministic: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        memory_limit: int | str | None = None,
        engine: EngineLike = None,
    ) -> None:
        self.lambda0 = lambda0
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.eps1 = eps1
        self.eps2 = eps2
        self.n_max = n_max
        self.m_max = m_max
        self.k_max = k_max
        self.time_limit = time_limit
        self.standardize = standardize
        self.fourier = fourier
        self.gamma = gamma
        self.deterministic = deterministic
        self.random_state = random_state
        self.memory_limit = memory_limit
        self.engine = engine

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each sample: the one with the largest score, or drawn if not `deterministic`.

        Parameters
        ----------
        X : Dataset, array-like, scipy sparse matrix or dask array of shape (n_samples, n_features)
            As for `Classifier.predict`.
        """
        if self.deterministic:
            return super().predict(X)
        probabilities = self.predict_proba(X)
        draws = check_random_state(self.random_state).random_sample((len(probabilities), 1))
        codes = (np.cumsum(probabilities, axis=1) <= draws).sum(axis=1)
        return self._labels(np.minimum(codes, probabilities.shape[1] - 1))

    def _dataset(self, X: Any, y: Any) -> Dataset:
        """Return a dataset of arrays, with mapped features."""
        if not self._maps_features:
            return super()._dataset(X, y)
        self.check_params()
        self._check_dense(X)
        if is_lazy(X):
            raise DataError(
                "standardize and fourier are not supported here for dask arrays",
                "call bigmc.ingest(X, label=y, …)",
            )
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        map = FeatureMap.fit(Moments.of(X), self.fourier, self.gamma, self._seed())
        return Dataset.from_arrays(map.transform(X), y, features={"map": map.to_dict()})

    def _labelled(self, X: Any, y: Any) -> Dataset:
        if isinstance(X, Dataset) and self._maps_features:
            raise DataError(
                "ingest makes the features of a dataset",
                "give standardize and fourier to bigmc.ingest instead",
            )
        return super()._labelled(X, y)

    def _training_chunks(self, X: Any) -> Iterator[Any]:
        self._check_dense(X)
        return super()._training_chunks(X)

    def _checked_chunks(self, X: Any) -> Iterator[Any]:
        self._check_dense(X)
        for chunk in super()._checked_chunks(X):
            yield chunk if self._map is None else self._map.transform(chunk)

    @property
    def _maps_features(self) -> bool:
        return bool(self.standardize or self.fourier)

    def _check_dense(self, X: Any) -> None:
        if self._maps_features and scipy.sparse.issparse(X):
            raise DataError(
                "X is sparse, but standardize and fourier need dense arrays",
                "give X.toarray(), or train without them",
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self._maps_features
        return tags

    @property
    def _map(self) -> FeatureMap | None:
        spec = self.model_.feature_spec
        return FeatureMap.from_dict(spec["map"]) if "map" in spec else None

    def _take(self, model: Model) -> Self:
        super()._take(model)
        if self._map is not None:
            self.n_features_in_ = len(self._map.mean)
        return self

    @property
    def lambda0_(self) -> float:
        """The regularisation used, given or chosen."""
        check_is_fitted(self)
        model: MinimaxModel = self.model_
        return model.lambda0
