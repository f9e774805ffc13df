"""Which cases of a test stand for all of them, where not the whole suite is run."""


def most_different(cases, n_kept):
    """Return some cases of a test: each has as many values of parameters as possible that none before has."""
    left, seen, kept = list(cases), set(), []
    while left and len(kept) < n_kept:
        kept.append(max(left, key=lambda case: len(values_of(case) - seen)))
        left.remove(kept[-1])
        seen |= values_of(kept[-1])
    return kept


def values_of(case):
    """Return the places of a case's values among those of their parameters."""
    return set(case.callspec.indices.items()) if hasattr(case, "callspec") else set()
