"""Trees grown by the workers of a cluster: the bits of threads, streamed or not, stopped or not."""

import numpy as np
import pytest

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.solvers import boosting
from bigmc.solvers.loop import RunContext

pytestmark = pytest.mark.slow


def solve(dataset, *, memory_limit, block_bytes=None, engine=None, checkpoint=None, **options):
    """Call the solver with its options by name."""
    context = RunContext(engine or ThreadEngine(), checkpoint)
    return boosting.solve(
        dataset, boosting.BoostingOptions(**options), memory_limit, context, block_bytes=block_bytes
    )


class Kept:
    """A checkpoint in memory that stops the run after its second save."""

    def __init__(self):
        self.kept, self.left = None, 2

    def save(self, meta, arrays):
        self.kept = (dict(meta), dict(arrays))
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt

    def load(self):
        return self.kept and ({**self.kept[0], "history": list(self.kept[0]["history"])}, self.kept[1])


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize(
    ("block_bytes", "columns"),
    [(None, {}), (3000, {}), (None, {"column_share": 0.5}), (None, {"best_cuts": 3})],
)
def test_workers_grow_the_trees_of_threads(engine_of, tmp_path, block_bytes, columns):
    generator = np.random.default_rng(0)
    X = generator.integers(0, 40, (700, 9)).astype(np.float64)
    y = (X[:, 0] > X[:, 1]) + 2 * (X[:, 2] + generator.integers(0, 9, 700) > X[:, 3])
    dataset = bigmc.ingest(X, tmp_path / "x.bigmc", label=y)
    options = {"C": 1e3, "max_depth": 3, "pool": 6, "n_rounds": 4, "memory_limit": 10**9}
    options |= columns
    threads = solve(dataset, engine=ThreadEngine(2), **options)
    checkpoint = Kept()
    with pytest.raises(KeyboardInterrupt):
        solve(dataset, engine=engine_of(2), block_bytes=block_bytes, checkpoint=checkpoint, **options)
    # Those that go on have not seen the columns of the learners found before.
    workers = solve(dataset, engine=engine_of(2), block_bytes=block_bytes, checkpoint=checkpoint, **options)
    one, other = threads.stages.arrays(), workers.stages.arrays()
    assert all((one[name] == other[name]).all() for name in one)
    assert (threads.thresholds == workers.thresholds).all()
    assert workers.bytes_read > 0
