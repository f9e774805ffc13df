"""The loop that learners share, with a learner small enough to follow: bisection for the root of two."""

import numpy as np
import pytest

from bigmc.engine import ThreadEngine
from bigmc.errors import ModelError
from bigmc.progress import Progress
from bigmc.solvers import loop
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import Packed, RunContext

RUN = {"root_of": 2.0}


class Bisection:
    """The interval that holds the root halves in every step."""

    def __init__(self, tol):
        self.tol = tol
        self.history = []

    def start(self):
        self.low, self.high = 0.0, 2.0

    def resume(self, saved):
        self.history = list(saved.meta["history"])
        self.low, self.high = saved.arrays["interval"].tolist()

    def certify(self):
        certificate = Certificate.of(self.low, self.high)
        return certificate, {"step": float(len(self.history)), "gap": certificate.gap}

    def message(self, figures):
        return Progress("bisect", int(figures["step"]), 0, "steps", figures)

    def reason_to_stop(self, certificate):
        return "tol" if certificate.gap <= self.tol else None

    def improve(self):
        middle = (self.low + self.high) / 2
        self.low, self.high = (middle, self.high) if middle**2 < 2 else (self.low, middle)

    def pack(self):
        return Packed({"history": list(self.history)}, {"interval": np.array([self.low, self.high])})


class Memory:
    """A checkpoint that keeps every save, and loads the last of those it is given."""

    def __init__(self, *saved):
        self.saved = list(saved)

    def save(self, meta, arrays):
        self.saved.append((meta, arrays))

    def load(self):
        return self.saved[-1] if self.saved else None


def run(checkpoint=None, seen=None):
    context = RunContext(ThreadEngine(1), checkpoint, seen.append if seen is not None else lambda _: None)
    method = Bisection(1e-9)
    outcome = loop.run(method, context, RUN, loop.load(context, RUN))
    return method, outcome


def test_it_records_and_tells_every_certificate_and_stops_at_the_first_that_is_good_enough():
    seen = []
    method, outcome = run(seen=seen)
    assert outcome.stopped == "tol"
    assert outcome.certificate.lower <= np.sqrt(2) <= outcome.certificate.upper
    gaps = [figures["gap"] for figures in method.history]
    assert all(gap > 1e-9 for gap in gaps[:-1])
    assert gaps[-1] <= 1e-9
    assert [message.facts for message in seen] == method.history


class Silent(Bisection):
    """Has nothing to record before the first step."""

    def certify(self):
        certificate, figures = super().certify()
        return certificate, figures if self.low > 0.0 else None


def test_a_certificate_without_figures_is_neither_recorded_nor_told():
    seen, method = [], Silent(1e-9)
    outcome = loop.run(method, RunContext(ThreadEngine(1), None, seen.append), RUN, None)
    whole, _ = run()
    assert outcome.stopped == "tol"
    assert [entry["gap"] for entry in method.history] == [entry["gap"] for entry in whole.history[1:]]
    assert len(seen) == len(method.history)


def test_a_run_resumed_from_any_save_ends_as_if_it_had_not_stopped():
    kept = Memory()
    whole, _ = run(kept)
    assert len(kept.saved) == len(whole.history)  # the start, and every better state
    for number, saved in enumerate(kept.saved):
        seen = []
        again, _ = run(Memory(saved), seen)
        assert (again.low, again.high, again.history) == (whole.low, whole.high, whole.history)
        assert len(seen) == len(whole.history) - number


def test_the_checkpoint_of_another_run_is_refused():
    kept = Memory()
    run(kept)
    context = RunContext(ThreadEngine(1), kept)
    with pytest.raises(ModelError, match="root_of"):
        loop.load(context, {"root_of": 3.0})
