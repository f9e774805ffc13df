"""The boosted multiclass classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from bigmc.engine import EngineLike, opened
from bigmc.errors import DataError
from bigmc.estimators.arrays import row_batches
from bigmc.estimators.weights import WeightedClassifier
from bigmc.learners.boosting import BoostingLearner
from bigmc.model import BoostedModel
from bigmc.model.linear_scoring import Scorer
from bigmc.solvers.certificate import Certificate
from bigmc.store.dataset import Dataset


class MultiBoostClassifier(WeightedClassifier):
    """Boosting with separate weak learners for every class, and a bound on the distance to the optimum.

    Minimises ``‖w‖₁ + C/p Σ_i Σ_{y≠y_i} exp(-(F_{y_i}(x_i) - F_y(x_i)))``, ``w ≥ 0``, over the weights of all
    weak learners of a family, with ``F_c(x) = Σ_j w_cj h_cj(x)`` and p the number of terms, by column
    generation; fast coordinate descent solves the restricted problems (Lin, Shen, van den Hengel and
    Suter, "Fast training of effective multi-class boosting using coordinate descent optimization", ACCV
    2012). Each pass over the data adds a pool of learners per class instead of one.

    Learners split on raw values; samples with NaN, a missing value, go to the better side of a split.
    In a dataset they split on stored values, regardless of its weighting, except ``binary``.

    Parameters
    ----------
    C : float or "auto", default=1e5
        Weight of the loss against ``‖w‖₁``, above 0; larger fits more closely, and noisy classes need less.
        Auto tries seven values from 1e2 to 1e5 for at most 10 rounds each, takes the one with the fewest
        errors on held-out samples (`validation_fraction` of them, or a fifth), and trains again with it.
    n_rounds : int, default=100
        Maximum number of rounds; each is a pass over the data, or one for every level of a tree.
    max_depth : int or None, default=None
        Depth of a learner, 1 to 6. None is 4, or 1 if fewer than a tenth of the values are stored or
        `family` is not auto. Trees of depth 2 or more are grown greedily, so
        the optimum over all trees is unknown and the certificate is infinitely wide.
        `restricted_certificate_` bounds the gap to the best weights for the same trees.
    tol : float, default=1e-3
        Stop when the relative gap between the bounds of the optimum is this small; with trees, when no tree
        found in a round violates optimality by more.
    family : {"auto", "stump", "ray"}, default="auto"
        Learners of depth 1: a stump is +1 on one side and -1 on the other; a ray is +1 (or -1) on one side
        and 0 on the side of the value 0. Rays suit text: their cost is that of the entries in their column.
        Auto uses rays if fewer than a tenth of the values are stored.
    learners : {"class", "shared"}, default="class"
        Whether each class uses only the learners added for it, or all classes share all learners
        (MultiBoost, Shen and Hao 2011, which the paper compares with). The optimum is the same.
    loss : {"exponential", "log_loss"}, default="exponential"
        Loss of the margins γ of a sample over the other classes: ``Σ exp(-γ)``, or ``log(1 + Σ exp(-γ))``.
        With the second, samples that are labelled wrongly have less influence.
    label_noise : float, default=0.0
        Share of labels that are drawn at random, at least 0 and below 1; with the log loss of trees only. The
        loss is then ``-log((1 - label_noise) p + label_noise / n_classes)``, where p is the probability of
        the label (forward correction, Patrini et al., CVPR 2017), and samples whose label is improbable
        hardly count.
    pool : int or None, default=None
        Learners added in a pass, per class or shared; 1 is the published algorithm. None is 40, for
        trees 20.
    max_sweeps : int or None, default=None
        Sweeps over a class's learners for each added learner; 1 updates new learners only (the
        published stage-wise variant, for ``C=1e8``). None is 3, for trees 1.
    inner_rounds : int or None, default=None
        Maximum number of learners added per class between two passes. None is 30, for trees 5.
    learning_rate : float or None, default=None
        Fraction of the step to its best value that an update moves a weight, above 0 and at most 1. None is
        1, for trees 0.3, since fully fitted weights of greedily grown trees are worse.
    max_bins : int, default=255
        Maximum number of bins of a feature, 2 to 255; features with fewer distinct values are exact. Edges
        between bins are near quantiles, at round numbers where there are any.
    column_share : float, default=1.0
        Share of the columns that the trees of a round may split on, drawn anew for each round, above 0 and
        at most 1. Fewer columns make trees more different and rounds cheaper. Learners of depth 1 use all.
        Where no tree is worth adding, a round searches more columns, until it has searched 1,000 or all (the
        first round: all); if none is then, training stops.
    best_cuts : int, optional
        Trees split only on the columns of so many of the best first cuts of each class, before any learner
        has weight; by default on all. Where few of thousands of columns matter, rounds of random columns
        seldom have them. Needs trees of several levels.
    n_models : int, default=1
        Number of models to average, each with its own random columns; needs a `column_share` below 1.
        A mean of 4 errs less than one model, above all on tables of few rows.
    min_frequency : float, default=0.0
        Trees split only on features stored in at least this share of the samples, below 1. With hashed
        texts or categories of many values, .02 keeps the numbers and the frequent words and values;
        searching all buckets at every node would take hours.
    validation_fraction : float, default=0.0
        Share of the samples to hold out, below 1. The model predicts with the stage that has the fewest
        errors on them, and `predict_proba` is fitted to them; see also `calibrate`.
    patience : int, default=10
        Stop after this many rounds without fewer errors on these samples.
    time_limit : float or None, default=None
        Seconds after which no further round starts. The model then depends on the machine.
    random_state : int, RandomState or None, default=0
        Orders the updates and chooses the held-out samples. Equal seeds give equal models, bit for bit,
        with any number of workers.
    memory_limit : int, str or None, default=None
        Bytes, or a text such as ``"2GB"``, that training may add to the memory already in use; None is
        half of the container's memory.
    engine : Engine, distributed.Client, str or None, default=None
        Prices the columns; None is one thread per processor. With a client or the address of a Dask
        scheduler, a cluster prices the columns of a dataset on disk, which its workers see, and the memory
        limit holds for each process; arrays stay in this one. `bigmc.solvers.boosting.cluster_pricing` and
        `cluster_tree_growth` say what is sent.
    class_weight : dict, "balanced" or None, default=None
        Weight of each label; ``"balanced"`` is inversely proportional to its frequency.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    C_ : float
        The C used.
    feature_importances_ : scipy.sparse.csr_array of shape (n_classes, n_features)
        Sum of the weights of each class's learners by feature; a tree's weight is split among its nodes.
    objective_ : float
    certificate_ : Certificate
        ``lower <= optimum <= upper`` and their relative ``gap``, for the optimum over all learners of the
        family, not only those in the model; ``-inf`` and ``inf`` for trees.
    restricted_certificate_ : Certificate or None
        For trees: the same for the optimum over the trees that have weight after the last round; else None.
    n_iter_ : int
        Rounds.
    n_passes_ : float
        Passes over the data.
    history_ : list of dict
        Figures of every round; of trees, the last has the restricted certificate, too.
    n_features_in_ : int
    feature_names_in_ : array of shape (n_features,)
        Only if the data was a frame whose column names are all strings.
    model_ : BoostedModel
        The model that `save` writes.
    """

    model_: BoostedModel

    learner_type = BoostingLearner

    def __init__(
        self,
        C: float | str = 1e5,
        *,
        n_rounds: int = 100,
        max_depth: int | None = None,
        tol: float = 1e-3,
        family: str = "auto",
        learners: str = "class",
        loss: str = "exponential",
        label_noise: float = 0.0,
        pool: int | None = None,
        max_sweeps: int | None = None,
        inner_rounds: int | None = None,
        learning_rate: float | None = None,
        max_bins: int = 255,
        column_share: float = 1.0,
        best_cuts: int | None = None,
        n_models: int = 1,
        min_frequency: float = 0.0,
        validation_fraction: float = 0.0,
        patience: int = 10,
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = 0,
        memory_limit: int | str | None = None,
        engine: EngineLike = None,
        class_weight: Mapping[Any, float] | str | None = None,
    ) -> None:
        self.C = C
        self.n_rounds = n_rounds
        self.max_depth = max_depth
        self.tol = tol
        self.family = family
        self.learners = learners
        self.loss = loss
        self.label_noise = label_noise
        self.pool = pool
        self.max_sweeps = max_sweeps
        self.inner_rounds = inner_rounds
        self.learning_rate = learning_rate
        self.max_bins = max_bins
        self.column_share = column_share
        self.best_cuts = best_cuts
        self.n_models = n_models
        self.min_frequency = min_frequency
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.time_limit = time_limit
        self.random_state = random_state
        self.memory_limit = memory_limit
        self.engine = engine
        self.class_weight = class_weight

    @property
    def C_(self) -> float:
        """The C used, given or chosen."""
        check_is_fitted(self)
        return self.model_.C

    @property
    def restricted_certificate_(self) -> Certificate | None:
        """Bounds on the optimum over the trees of the model only; None for learners of depth 1."""
        check_is_fitted(self)
        last = self.history_[-1]
        if "restricted_lower" not in last:
            return None
        return Certificate(last["restricted_lower"], last["objective"], last["restricted_gap"])

    @property
    def feature_importances_(self) -> scipy.sparse.csr_array:
        """Sum of the weights of each class's learners by feature, shape (n_classes, n_features)."""
        check_is_fitted(self)
        model = self.model_
        parts = [model.importances(c) for c in range(model.n_classes)]
        rows = np.repeat(np.arange(model.n_classes), [len(features) for features, _ in parts])
        columns = np.concatenate([features for features, _ in parts])
        values = np.concatenate([weights for _, weights in parts])
        shape = (model.n_classes, model.n_features)
        return scipy.sparse.csr_array((values, (rows, columns)), shape)

    def staged_decision_function(self, X: Any) -> Iterator[NDArray[np.float64]]:
        """Yield the scores after every round, shape (n_samples, n_classes).

        Parameters
        ----------
        X : Dataset, array-like or scipy sparse matrix of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        model = self.model_
        if isinstance(X, Dataset):
            model.check_features(X)
            with opened(self.engine) as engine:
                own = X.seen_by(engine)
                for stage in range(1, model.n_stages):
                    parts = own.map(_stage_scores, range(X.n_shards), model.stage_scorer(stage), X)
                    yield np.concatenate([scores for _, scores in parts])
            return
        batches = [rows for chunk in self._checked_chunks(X) for rows in row_batches(chunk)]
        if not batches:
            raise DataError("there are no samples", "give at least one")
        for stage in range(1, model.n_stages):
            scorer = model.stage_scorer(stage)
            yield np.concatenate([scorer.rows(rows) for rows in batches])

    def staged_predict(self, X: Any) -> Iterator[NDArray[Any]]:
        """Yield the predicted labels after every round; `X` as for the scores."""
        for scores in self.staged_decision_function(X):
            yield self._labels(np.argmax(scores, axis=1))


def _stage_scores(shard: int, scorer: Scorer, dataset: Dataset) -> NDArray[np.float64]:
    return scorer.shard(dataset.shards[shard])
