"""The learners inside scikit-learn: a pipeline, a grid search and a comparison by cross-validation.

python examples/scikit_learn.py
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import bigmc


def main() -> None:
    """Choose a penalty by cross-validation and compare with a model that uses every feature."""
    X, y = load_digits(return_X_y=True)
    sparse = make_pipeline(MinMaxScaler(), bigmc.SparseClassifier())
    search = GridSearchCV(sparse, {"sparseclassifier__alpha": [3e-2, 1e-2, 3e-3]}, cv=3).fit(X, y)
    chosen = search.best_estimator_[-1]
    used = np.unique(chosen.coef_.indices).size
    print(
        f"best alpha {chosen.alpha:g}: accuracy {search.best_score_:.3f} with {used} of {X.shape[1]} pixels"
    )
    dense = make_pipeline(MinMaxScaler(), LogisticRegression(max_iter=1000))
    print(f"logistic regression: accuracy {cross_val_score(dense, X, y, cv=3).mean():.3f} with all pixels")


if __name__ == "__main__":
    main()
