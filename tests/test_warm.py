"""What `bigmc warm` compiles: all that usual fits, trainings and predictions in memory need after it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bigmc

pytestmark = pytest.mark.slow

PROGRAM = """
import json, pathlib, sys
import numpy as np
import bigmc
from bigmc import api
from bigmc.api.first_fit import compile_for
from numba.core.dispatcher import Dispatcher

def compiled():
    kernels = (k for name, m in list(sys.modules.items()) if name.startswith("bigmc.kernels.")
               for k in vars(m).values() if isinstance(k, Dispatcher))
    return {f"{k.py_func.__module__}.{k.py_func.__name__} {s}" for k in kernels for s in k.signatures}

api.warm()
known = compiled()
generator, n, to = np.random.default_rng(0), 400, pathlib.Path(sys.argv[1])
(to / "ahead").mkdir()
compile_for(["numbers", "texts"], to / "ahead")
words = [" ".join(f"w{7 * i + j * j}" for j in range(12)) for i in range(n)]
texts = [{"text": f"Äpfel of class{i % 3} {words[i]}", "label": f"c{i % 3}"} for i in range(n)]
sets = [{"text": f"class{i % 3} {words[i]}", "label": [f"c{i % 3}", f"d{i % 2}"]} for i in range(n)]
for name, rows in (("texts", texts), ("sets", sets)):
    (to / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    bigmc.fit(to / f"{name}.jsonl", to / f"{name}.model", text="text", label="label")
    model = bigmc.load_model(to / f"{name}.model")
    model.predict(["a text", "w1 class2"]), model.decision_function(["ähnlich"]), model.explain("w1 class2")
numbers = generator.normal(size=(n, 4)) + np.arange(n)[:, None] % 3
lines = "".join(f"{','.join(map(str, row))},c{i % 3}\\n" for i, row in enumerate(numbers))
(to / "numbers.csv").write_text("a,b,c,d,label\\n" + lines)
bigmc.fit(to / "numbers.csv", to / "numbers.model", dense=list("abcd"), label="label")
bigmc.load_model(to / "numbers.model").predict(numbers)
rows, words = 135_000, [" ".join(f"u{j * j % (k + 7)}" for j in range(2)) for k in range(900)]
with open(to / "many.csv", "w") as file:
    file.write("text,x,label\\n" + " ".join(f"v{i}" for i in range(200_000)) + ",0,d0\\n")
    for i in range(rows):
        file.write(f"class{i * i % 4} {words[i % 900]},{i % 4 + generator.random():.5f},d{i * i % 4}\\n")
api.ingest(to / "many.csv", to / "many", text="text", label="label")
api.ingest(to / "many.csv", to / "numbers", dense="x", label="label", weighting="scaled")
api.train("sparse", to / "many", to / "many.sparse")
api.train("sparse", to / "numbers", to / "numbers.sparse", alpha=0.0, ridge=1e-3, loss="log_loss",
          fit_intercept=True)
print(json.dumps(sorted(compiled() - known)))
"""


@pytest.mark.exhaustive
def test_nothing_is_compiled_by_fits_and_trainings_after_it(tmp_path: Path) -> None:
    root = str(Path(bigmc.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []
