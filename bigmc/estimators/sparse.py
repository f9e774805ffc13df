"""The sparse multiclass linear classifier."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bigmc.budget import resolve_limit
from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import BigmcError, DataError, ModelError
from bigmc.estimators.arrays import chunk_shards, combined_weights, is_lazy, row_batches, row_chunks
from bigmc.model import Model
from bigmc.objectives import objective
from bigmc.progress import ProgressCallback, silent
from bigmc.solvers import Certificate, Checkpoint, solve
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

#: The parameters that a model records; memory and workers are no part of the result.
_SAVED_PARAMS = (
    "alpha", "loss", "penalty", "fit_intercept", "tol", "max_passes", "random_state", "class_weight", "step",
)  # fmt: skip


class SparseClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multiclass linear classifier that selects features for all classes at once.

    Minimises ``F(W) = (1/n) Σ_i Σ_{r≠y_i} max(1 - (s_{y_i} - s_r), 0)² + alpha Σ_j ‖W_j‖₂`` with
    ``s = Wᵀx_i`` by block coordinate descent and proves how close it came (Blondel, Seki and Uehara,
    "Block coordinate descent algorithms for large-scale sparse multiclass classification", Machine
    Learning 93, 2013). With weights on the samples the mean of the losses is the weighted one.

    Parameters
    ----------
    alpha : float, default=1e-4
        Strength of the penalty, above 0; larger means fewer features.
    loss : {"squared_hinge"}, default="squared_hinge"
    penalty : {"l1/l2"}, default="l1/l2"
    fit_intercept : bool, default=False
        Add an unpenalised constant for every class.
    tol : float, default=1e-3
        Stop when the relative gap between the bounds of the optimum is this small.
    max_passes : int, default=100
        Most passes over the data.
    random_state : int, RandomState or None, default=0
        Orders the updates. Equal seeds give equal models, bit for bit, with any number of workers.
    memory_limit : int, str or None, default=None
        Bytes, or a text such as ``"2GB"``, that training may add to what is in memory already; None is
        half of what the container may use.
    engine : Engine or None, default=None
        Runs the parts; None is threads, one per processor.
    class_weight : dict, "balanced" or None, default=None
        Weight of each label, or inversely proportional to how often it occurs.
    step : {"line_search", "constant"}, default="line_search"
        How far to go in each update.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
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
    feature_names_in_ : array of shape (n_features_in_,)
        Only when the data was a frame whose column names are all strings.
    model_ : Model
        What `save` writes.
    """

    def __init__(
        self,
        alpha: float = 1e-4,
        *,
        loss: str = "squared_hinge",
        penalty: str = "l1/l2",
        fit_intercept: bool = False,
        tol: float = 1e-3,
        max_passes: int = 100,
        random_state: int | np.random.RandomState | None = 0,
        memory_limit: int | str | None = None,
        engine: Engine | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        step: str = "line_search",
    ) -> None:
        self.alpha = alpha
        self.loss = loss
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_passes = max_passes
        self.random_state = random_state
        self.memory_limit = memory_limit
        self.engine = engine
        self.class_weight = class_weight
        self.step = step

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> SparseClassifier:
        """Train on arrays, or on a dataset, which has its labels inside.

        Parameters
        ----------
        X : Dataset, array-like, scipy sparse matrix or dask array of shape (n_samples, n_features)
            A dask array is computed chunk by chunk of its rows and kept in memory in the form of a
            dataset; for more data than memory, ingest it.
        y : array-like of shape (n_samples,)
            Labels of one type; left out for a dataset.
        sample_weight : array-like of shape (n_samples,), optional
            At least 0; the same as repeating or leaving out samples.

        Raises
        ------
        ValueError
            If there are fewer than 2 classes, or the data or the parameters cannot be used.
        MemoryLimitError
            If the memory limit is too small.
        """
        if not isinstance(X, Dataset):
            return self.fit_dataset(self._dataset(X, y), sample_weight=sample_weight)
        if y is not None:
            raise DataError("a dataset has its labels inside", "call fit(dataset) without y")
        self.__dict__.pop("feature_names_in_", None)
        return self.fit_dataset(X, sample_weight=sample_weight)

    def fit_dataset(
        self,
        dataset: Dataset,
        *,
        sample_weight: ArrayLike | None = None,
        checkpoint: Checkpoint | None = None,
        progress: ProgressCallback = silent,
        scratch: Path | None = None,
    ) -> SparseClassifier:
        """Train on a dataset, with what a long run needs beside `fit`.

        Parameters
        ----------
        dataset : Dataset
            Labelled samples.
        sample_weight : array-like of shape (n_samples,), optional
            As for `fit`.
        checkpoint : Checkpoint, optional
            Where the state is saved, and read from at the start.
        progress : callable, optional
            Called with a `Progress` after every pass.
        scratch : Path, optional
            Folder for scores that do not fit into memory; by default the system's for temporary files.
        """
        self.check_params()
        labels = dataset.labels()
        if len(labels) == 0 or labels.min() < 0:
            missing = "some samples have no label" if len(labels) else "the dataset has no samples"
            raise DataError(missing, "train on labelled samples")
        weights = combined_weights(sample_weight, self.class_weight, labels, dataset.classes)
        params = {name: getattr(self, name) for name in _SAVED_PARAMS} | {"random_state": self._seed()}
        if isinstance(self.class_weight, Mapping):  # pairs, since the keys of JSON are texts
            params["class_weight"] = list(self.class_weight.items())
        solution = solve(
            dataset,
            loss=self.loss,
            penalty=self.penalty,
            alpha=float(self.alpha),
            fit_intercept=bool(self.fit_intercept),
            tol=float(self.tol),
            max_passes=int(self.max_passes),
            seed=params["random_state"],
            step=self.step,
            sample_weight=weights,
            memory_limit=resolve_limit(self.memory_limit),
            engine=self._workers(),
            checkpoint=checkpoint,
            progress=progress,
            scratch=scratch,
        )
        bounds = solution.certificate
        model = Model(
            kind="sparse",
            classes=dataset.classes,
            n_features=dataset.n_features,
            features=solution.features,
            coef=solution.coef,
            intercept=solution.intercept,
            weighting=dataset.weighting,
            column_scale=solution.column_scale,
            feature_spec=dataset.features,
            params=params,
            certificate={"lower": bounds.lower, "upper": bounds.upper, "gap": bounds.gap},
            objective=solution.objective,
            n_iter=max(1, solution.n_iter),
            n_passes=solution.n_passes,
            # A resumed run reads columns again that it had in memory; the model is the same.
            history=[{k: v for k, v in entry.items() if k != "bytes_read"} for entry in solution.history],
        )
        if not solution.converged:
            warnings.warn(
                f"stopped after {solution.n_passes:.3g} passes with a gap of {bounds.gap:.3g}, above "
                f"tol={self.tol:g}; raise max_passes (now {self.max_passes}) or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self._take(model)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each sample: the first of the classes with the largest score.

        Parameters
        ----------
        X : Dataset, array-like, scipy sparse matrix or dask array of shape (n_samples, n_features)
            Arrays hold raw values: the weighting of the training data is applied to them. Datasets and
            dask arrays are read part by part.

        Raises
        ------
        ModelError
            If the features of a dataset are not those of the training data.
        """
        check_is_fitted(self)
        if isinstance(X, Dataset):
            return self._labels(self._codes(X))
        return self._labels(np.concatenate([np.argmax(s, axis=1) for s in self._score_batches(X)]))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of each sample.

        Parameters
        ----------
        X : Dataset, array-like, scipy sparse matrix or dask array of shape (n_samples, n_features)
            As for `predict`.

        Returns
        -------
        float64 array of shape (n_samples, n_classes), or (n_samples,) for two classes
            For two classes the score of the second minus that of the first.
        """
        check_is_fitted(self)
        if isinstance(X, Dataset):
            self.model_.check_features(X)
            found = self._workers().map(_shard_scores, range(X.n_shards), self.model_, X)
            scores = np.concatenate([np.empty((0, len(self.classes_)))] + [s for _, s in found])
        else:
            scores = np.concatenate(list(self._score_batches(X)))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy: on arrays and their labels, or on a dataset, which has its own.

        A sample whose label was not in the training data counts as an error.
        """
        if not isinstance(X, Dataset):
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self)
        if y is not None:
            raise DataError("a dataset has its labels inside", "call score(dataset) without y")
        code = {label: c for c, label in enumerate(self.classes_.tolist())}
        own = np.array([code.get(label, -1) for label in X.classes.tolist()], np.int64)
        right = (own[X.labels()] == self._codes(X)).astype(np.float64)
        weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        return float(np.average(right, weights=weights))

    @property
    def coef_(self) -> scipy.sparse.csr_array:
        """Weights of shape (n_classes, n_features)."""
        model = self.model_
        rows, classes = np.nonzero(model.coef)
        return scipy.sparse.csr_array(
            (model.coef[rows, classes], (classes, model.features[rows])), (model.n_classes, model.n_features)
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model into one file, for `bigmc.load_model`."""
        check_is_fitted(self)
        self.model_.save(path)

    @classmethod
    def from_model(cls, model: Model) -> SparseClassifier:
        """Return a fitted classifier around a model."""
        if model.kind != "sparse":
            raise ModelError(f"a model of kind {model.kind!r} makes no {cls.__name__}")
        params = {name: value for name, value in model.params.items() if name in _SAVED_PARAMS}
        if isinstance(params.get("class_weight"), list):
            params["class_weight"] = dict(params["class_weight"])
        return cls(**params)._take(model)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # scikit-learn's checks ask for scores that no plane through the origin reaches on their data.
        tags.classifier_tags.poor_score = not self.fit_intercept
        return tags

    def _take(self, model: Model) -> SparseClassifier:
        """Take over a model as the result of fitting."""
        self.model_ = model
        self.classes_ = model.classes
        self.intercept_ = model.intercept
        self.objective_ = model.objective
        self.certificate_ = Certificate(**model.certificate)
        self.n_iter_ = model.n_iter
        self.n_passes_ = model.n_passes
        self.history_ = list(model.history)
        self.n_features_in_ = model.n_features
        if "columns" in model.feature_spec:
            self.feature_names_in_ = np.array(model.feature_spec["columns"], object)
        return self

    def _dataset(self, X: Any, y: Any) -> Dataset:
        """Return the dataset that arrays make, after scikit-learn's checks."""
        if not is_lazy(X):
            X, y = validate_data(self, X, y, accept_sparse="csr")
            check_classification_targets(y)
            return Dataset.from_arrays(X, y, features=self._columns())
        labels = column_or_1d(y.compute() if is_lazy(y) else y, warn=True)
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        shards = list(chunk_shards(self._checked_chunks(X, first=True), codes.astype(np.int32)))
        return Dataset(shards, classes, self.n_features_in_, Weighting(), self._columns())

    def _checked_chunks(self, X: Any, first: bool = False) -> Iterator[Any]:
        for chunk in row_chunks(X) if is_lazy(X) else [X]:
            yield validate_data(self, chunk, accept_sparse="csr", reset=first)
            first = False

    def _columns(self) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        return {} if names is None else {"columns": names.tolist()}

    def _score_batches(self, X: Any) -> Iterator[NDArray[np.float64]]:
        for chunk in self._checked_chunks(X):
            for rows in row_batches(chunk):
                yield self.model_.scores(rows)

    def _codes(self, dataset: Dataset) -> NDArray[np.integer[Any]]:
        self.model_.check_features(dataset)
        found = self._workers().map(_shard_codes, range(dataset.n_shards), self.model_, dataset)
        return np.concatenate([np.empty(0, np.int32)] + [codes for _, codes in found])

    def _labels(self, codes: NDArray[np.integer[Any]]) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[codes]
        return labels

    def _workers(self) -> Engine:
        return ThreadEngine() if self.engine is None else self.engine

    def _seed(self) -> int:
        state: Any = self.random_state
        if isinstance(state, Integral):
            return int(state)
        return int(check_random_state(state).randint(2**31 - 1))

    def check_params(self) -> None:
        """Refuse parameters that cannot be used, as `fit` does before it looks at the data.

        Raises
        ------
        BigmcError
            Naming the parameter and what may be given.
        """
        for name in ("alpha", "tol"):
            value: Any = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) < math.inf:
                raise BigmcError(f"{name} is {value!r}", "give a finite number above 0")
        passes: Any = self.max_passes
        if not isinstance(passes, Integral) or passes < 1:
            raise BigmcError(f"max_passes is {passes!r}", "give a whole number of at least 1")
        if self.step not in ("line_search", "constant"):
            raise BigmcError(f"step is {self.step!r}", 'use "line_search" or "constant"')
        if isinstance(self.class_weight, str) and self.class_weight != "balanced":
            raise DataError(f"class_weight {self.class_weight!r} is unknown", 'use "balanced" or a dict')
        objective(self.loss, self.penalty)


def _shard_codes(shard: int, model: Model, dataset: Dataset) -> NDArray[np.int32]:
    return model.shard_codes(dataset, shard)


def _shard_scores(shard: int, model: Model, dataset: Dataset) -> NDArray[np.float64]:
    return model.shard_scores(dataset, shard)
