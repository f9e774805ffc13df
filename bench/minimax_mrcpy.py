"""MRCpy on features that another process has made: ``minimax_mrcpy.py FEATURES.npz`` prints a line of JSON.

Run by ``bench/minimax.py`` with the interpreter of that peer. The solver is its constraint generation with
the Gurobi that comes with gurobipy, whose licence allows programs of about 2000 rows and columns.
"""

import contextlib
import io
import json
import sys
import time

import numpy as np
from MRCpy import MRC

given = np.load(sys.argv[1])
X, y = given["features"].astype(np.float64), given["labels"]
# Its λ is s · std / √n.
model = MRC(solver="ccg", phi="linear", s=float(given["lambda0"]) * np.sqrt(len(X)))
clock, processor = time.monotonic(), time.process_time()
with contextlib.redirect_stdout(io.StringIO()):
    model.fit(X, y, X_=X)  # without X_ it keeps 5000 samples, whatever there are
spent = {"seconds": time.monotonic() - clock, "cpu_seconds": time.process_time() - processor}
mu = np.asarray(model.mu_).tolist()
print(json.dumps({**spent, "restricted": float(model.upper_), "mu": mu}))
