"""How wrong can the classifier be? The minimax learner bounds its own error before it sees new data.

python examples/error_bound.py
"""

from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import bigmc


def main() -> None:
    """Compare the bound of the error with the error on samples that were held out."""
    X, y = load_wine(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X_train)
    model = bigmc.MinimaxRiskClassifier().fit(scaler.transform(X_train), y_train)
    bounds = model.certificate_
    print(f"minimax risk between {bounds.lower:.3f} and {bounds.upper:.3f}")
    print(f"error on held-out wines: {1 - model.score(scaler.transform(X_test), y_test):.3f}")
    print("The upper bound holds as far as the true distribution lies in the uncertainty set.")


if __name__ == "__main__":
    main()
