"""The loop: rebuild the dual weights, search learners, certify, generate columns, descend; and again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import BigmcError, DataError
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.solvers.boosting.binning import BinnedSource
from bigmc.solvers.boosting.learners import Learners
from bigmc.solvers.boosting.master import Master, Point
from bigmc.solvers.boosting.responses import BitResponses, Responses, RowResponses
from bigmc.solvers.boosting.search import CutSearch, Found, Search
from bigmc.solvers.boosting.state import Stages, State
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.state import Checkpoint
from bigmc.store.dataset import Dataset

#: The descent between two passes goes on until the violation is this part of the one the pass found.
_INNER_FRACTION = 0.2
_INNER_ROUNDS = 30


class _Rounds:
    def __init__(self, source, responses, search, master, depth, engine):
        self._source, self._responses, self._search = source, responses, search
        self._master, self._engine = master, engine
        self._keys: dict[int, bytes] = {}
        self._learners: dict[bytes, Learners] = {}
        self.state = State(Stages(depth))

    def run(self, tol, n_rounds, max_sweeps, rounds=_INNER_ROUNDS, frac=_INNER_FRACTION, verbose=True, per_round=1):
        master = self._master
        t0 = time.time()
        k = 0
        while True:
            point = master.rebuild(self._engine)
            ts=time.time()
            found = self._search.run(master.u, master.r)
            ts=time.time()-ts
            self.state.lower = max(self.state.lower, point.lower_bound(found.sigma))
            gap = 1 - self.state.lower / point.objective
            if verbose:
                print(k, f"{point.objective:.9f} {self.state.lower:.9f} gap {gap:.2e} sigma {found.sigma:.6f} n={master.n_learners} {len(found.answers)} search {ts:.3f} t={time.time()-t0:.2f}", flush=True)
            self.state.history.append(dict(objective=point.objective,gap=gap,seconds=time.time()-t0))
            if gap <= tol or k >= n_rounds:
                break
            k += 1
            new=self.take(found)
            e=master.improve(frac * max(found.sigma - 1, 0), rounds, max_sweeps, per_round)
            master.prune()
    def take(self, found):
        keys = found.learners.keys()
        slots=[]
        new=0
        for key, ans in zip(keys, found.answers):
            s=self._responses.find(key)
            if s is None: s=self._responses.add(key, ans)
            slots.append(s)
        slots=np.array(slots)
        for c in range(self._master.n_classes):
            mine=found.classes==c
            sl=slots[found.places[mine]]; sg=found.signs[mine]
            L=self._master.classes[c]
            have=set(zip(L.slots.tolist(),L.signs.tolist()))
            fresh=np.array([p not in have for p in zip(sl.tolist(),sg.tolist())],bool)
            new+=fresh.sum()
            L.add(sl[fresh],sg[fresh])
        return new
