"""How far the proof lags behind the objective where all data are in memory.

    python bench/certificate_lag.py glosses squared_hinge 1e-4 --folder bench/data

The problems are those of ``sparse_problems.py``. One line of JSON: CPU seconds after which the objective was
within 1e-2 and 1e-3 of that of the end, and after which the gap was certified to be that small. The objective
is seen after every Newton step and at every certificate, so that its seconds are those of the next look.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from sparse_problems import PROBLEMS

from bigmc import SparseClassifier

TOLERANCES = (1e-2, 1e-3)


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("loss")
    parser.add_argument("alpha", type=float)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "data")
    given = parser.parse_args()
    dataset, _ = PROBLEMS[given.problem].make(given.folder)
    # an easier problem compiles or loads the kernels
    SparseClassifier(20 * given.alpha, loss=given.loss, tol=TOLERANCES[-1]).fit_dataset(dataset)
    seen: list[tuple[float, float, float]] = []
    started = time.process_time()

    def look(progress: Any) -> None:
        if progress.stage == "train":
            facts = progress.facts
            seen.append((time.process_time() - started, facts["objective"], facts["gap"]))

    learner = SparseClassifier(given.alpha, loss=given.loss, tol=TOLERANCES[-1])
    end = learner.fit_dataset(dataset, progress=look).certificate_.upper
    figures: dict[str, Any] = {"problem": given.problem, "loss": given.loss, "alpha": given.alpha}
    for tolerance in TOLERANCES:
        near = next(seconds for seconds, objective, _ in seen if objective <= end * (1 + tolerance))
        proved = next(seconds for seconds, _, gap in seen if gap <= tolerance)
        figures[f"{tolerance:g}"] = {"objective": round(near, 1), "certified": round(proved, 1)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
