# mypy: ignore-errors
"""The best one-cut learners of all classes in one scan of the columns (Lin et al. 2012, equation 4).

The score of a learner ``h`` for class ``c`` is ``sum_i u_ic h(x_i)``; row ``i`` of `u` holds the dual
weights with their signs: ``+sum_y mu_iy`` at the own class and ``-mu_ic`` at the others. A histogram per
column adds up whole rows of `u` by code, all classes at once; the samples without an entry are the total
minus the rest. Classes are padded to a multiple of `LANES`, and the adding is written as vector
instructions, since its trip count is too short for the compiler.

Responses: a stump is +1 where ``code > cut`` and -1 elsewhere, missing values (the last code) on either
side; a ray is 1 on one side of a cut and abstains (0) on the side that holds 0 and on missing values.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bigmc.kernels.decorators import inner_kernel, kernel

LANES = 8

#: Kinds of cuts: +1 above and -1 below, with missing values above or below; 1 above; 1 below.
MISSING_ABOVE, MISSING_BELOW, ABOVE, BELOW = 0, 1, 2, 3


@intrinsic
def _add_lanes(typing, source, at, target, to):
    """``target[to : to + LANES] += source[at : at + LANES]``, the target being float64."""
    signature = types.void(source, at, target, to)

    def generate(context, builder, signature, arguments):
        pointers = []
        for k in (0, 2):
            kind = signature.args[k]
            data = context.make_array(kind)(context, builder, arguments[k]).data
            lanes = ir.VectorType(context.get_value_type(kind.dtype), LANES)
            place = builder.gep(data, [arguments[k + 1]])
            pointers.append((builder.bitcast(place, lanes.as_pointer()), kind.dtype.bitwidth // 8))
        (source, source_align), (target, target_align) = pointers
        terms = builder.load(source, align=source_align)
        if terms.type != target.type.pointee:
            terms = builder.fpext(terms, target.type.pointee)
        sums = builder.fadd(builder.load(target, align=target_align), terms)
        builder.store(sums, target, align=target_align)
        return context.get_dummy_value()

    return signature, generate


@kernel
def column_sums(u, labels, totals, own):
    """Add every row of `u` to `totals`, and its element at the sample's class to `own`, of shape (width,)."""
    flat = u.ravel()
    width = u.shape[1]
    for i in range(u.shape[0]):
        for c in range(0, width, LANES):
            _add_lanes(flat, i * width + c, totals, c)
        own[labels[i]] += u[i, labels[i]]


@kernel
def add_histograms(chosen, entries, u, hist):
    """Add the rows of `u` to the histogram of each of some columns, by code.

    `chosen` is a `CutColumns`, `entries` an `Entries`; `u` is C-contiguous, of shape (n_samples, width),
    and `hist` float64 of shape (sum of n_bins, width).
    """
    flat, flat_hist = u.ravel(), hist.ravel()
    width = u.shape[1]
    indptr = entries.indptr
    for s in range(indptr.shape[0]):
        first = np.uint64(entries.base[s])
        for p in range(chosen.columns.shape[0]):
            j = chosen.columns[p]
            at = chosen.firsts[p]
            own = entries.rows[indptr[s, j] : indptr[s, j + 1]]
            bins = entries.codes[indptr[s, j] : indptr[s, j + 1]]
            for k in range(own.shape[0]):
                i = first + np.uint64(own[k])
                b = np.uint64(at) + np.uint64(bins[k])
                source = np.int64(i * np.uint64(width))
                target = np.int64(b * np.uint64(width))
                for c in range(0, width, LANES):
                    _add_lanes(flat, source + c, flat_hist, target + c)


@inner_kernel
def _offer(best, c, value, score, place):
    """Keep a learner among the best of class `c` if it is better than the worst; of equal ones the first."""
    values, scores, places = best.values, best.scores, best.places
    last = values.shape[1] - 1
    if not value > values[c, last]:
        return
    k = last
    while k > 0 and value > values[c, k - 1]:
        values[c, k] = values[c, k - 1]
        scores[c, k] = scores[c, k - 1]
        places[c, k] = places[c, k - 1]
        k -= 1
    values[c, k] = value
    scores[c, k] = score
    places[c, k, 0], places[c, k, 1], places[c, k, 2] = place


@kernel
def merge_best(part, best):
    """Merge the best of a part into the best so far; parts must come in the order of their features."""
    values, places = part.values, part.places
    for c in range(values.shape[0]):
        for k in range(values.shape[1]):
            if values[c, k] > 0.0:
                place = (places[c, k, 0], places[c, k, 1], places[c, k, 2])
                _offer(best, c, values[c, k], part.scores[c, k], place)


@kernel
def find_cuts(chosen, totals, hist, best):
    """Offer the stumps of some columns whose score is a local maximum among its neighbours.

    Neighbouring cuts are nearly the same learner, so a peak represents its slope. `chosen` has columns
    with more than one bin; `totals`, float64 of shape (width,), are sums over all samples; `hist`, as for
    `add_histograms`, is overwritten; `best`, see `bigmc.solvers.boosting.pricing`, is changed.
    """
    n_classes, zero, missing = best.values.shape[0], chosen.zero, chosen.missing
    for p in range(chosen.columns.shape[0]):
        j = chosen.columns[p]
        n = chosen.n_bins[j]
        h = hist[chosen.firsts[p] : chosen.firsts[p] + n]
        if chosen.has_zeros[j]:
            for c in range(n_classes):
                rest = totals[c]
                for b in range(n):
                    rest -= h[b, c]
                h[zero[j], c] += rest
        feature = chosen.first_feature + j
        for c in range(n_classes):
            for kind in range(2 if missing[j] else 1):
                below = h[n - 1, c] if kind == MISSING_BELOW else 0.0
                before, last, last_score = -1.0, -1.0, 0.0
                # With missing values the cut above all edges separates them from the rest.
                stop = n - 2 if kind == MISSING_BELOW else n - 1
                for b in range(stop):
                    below += h[b, c]
                    score = totals[c] - 2.0 * below
                    value = abs(score)
                    if last >= before and last > value:
                        _offer(best, c, last, last_score, (feature, b - 1, kind))
                    before, last, last_score = last, value, score
                if stop and last >= before:
                    _offer(best, c, last, last_score, (feature, stop - 1, kind))


@inner_kernel
def _offer_masses(best, masses, place, worst):
    """Offer one ray to every class; `worst` has the value each must exceed."""
    hit = False
    for c in range(worst.shape[0]):
        hit |= abs(masses[c]) > worst[c]
    if hit:
        for c in range(worst.shape[0]):
            if abs(masses[c]) > worst[c]:
                _offer(best, c, abs(masses[c]), masses[c], place)
                worst[c] = best.values[c, best.values.shape[1] - 1]


@kernel
def find_rays(chosen, hist, best):
    """Offer all rays of some columns; samples without an entry do not count. Arguments as for `find_cuts`."""
    values, zero, missing = best.values, chosen.zero, chosen.missing
    width = hist.shape[1]
    masses = np.empty(width)
    worst = values[:, values.shape[1] - 1].copy()
    for p in range(chosen.columns.shape[0]):
        j = chosen.columns[p]
        feature = chosen.first_feature + j
        n = chosen.n_bins[j]
        h = hist[chosen.firsts[p] : chosen.firsts[p] + n]
        last = n - 2 if missing[j] else n - 1
        masses[:] = 0.0
        for b in range(min(zero[j], last)):
            for c in range(width):
                masses[c] += h[b, c]
            _offer_masses(best, masses, (feature, b, BELOW), worst)
        masses[:] = 0.0
        for b in range(last, zero[j], -1):
            for c in range(width):
                masses[c] += h[b, c]
            _offer_masses(best, masses, (feature, b - 1, ABOVE), worst)
