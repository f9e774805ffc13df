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
from numba import njit, types
from numba.extending import intrinsic

LANES = 8

#: What a cut separates: +1 above and -1 below, with missing values above or below; 1 above; 1 below.
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


@njit(cache=True, nogil=True, fastmath=False)
def column_sums(u, labels, totals, own):
    """Add every row of `u` to `totals`, and its element at the own class to `own`.

    Parameters
    ----------
    u : float array of shape (n_rows, width)
    labels : int32 array of shape (n_rows,)
    totals, own : float64 arrays of shape (width,)
    """
    flat = u.ravel()
    width = u.shape[1]
    for i in range(u.shape[0]):
        for c in range(0, width, LANES):
            _add_lanes(flat, i * width + c, totals, c)
        own[labels[i]] += u[i, labels[i]]


@njit(cache=True, nogil=True, fastmath=False)
def add_histograms(lo, hi, indptr, rows, codes, base, u, labels, firsts, with_own, hist, own):
    """Add the rows of `u` to the histogram of each column ``lo`` to ``hi``, by code.

    Parameters
    ----------
    lo, hi : int
    indptr : int64 array of shape (n_shards, n_columns + 1)
    rows : uint16 array
    codes : uint8 array
    base : int64 array of shape (n_shards + 1,)
    u : float array of shape (n_samples, width)
        C-contiguous.
    labels : int32 array of shape (n_samples,)
    firsts : int64 array of shape (hi - lo,)
        First row of each column in `hist`.
    with_own : bool
        Fill `own` too.
    hist, own : float64 arrays of shape (n_bins, width)
        All rows of `u`, and their elements at the own class only.
    """
    flat, flat_hist = u.ravel(), hist.ravel()
    width = u.shape[1]
    for s in range(indptr.shape[0]):
        first = np.uint64(base[s])
        for j in range(lo, hi):
            at = firsts[j - lo]
            here = rows[indptr[s, j] : indptr[s, j + 1]]
            bins = codes[indptr[s, j] : indptr[s, j + 1]]
            for k in range(here.shape[0]):
                i = first + np.uint64(here[k])
                b = np.uint64(at) + np.uint64(bins[k])
                source = np.int64(i * np.uint64(width))
                target = np.int64(b * np.uint64(width))
                for c in range(0, width, LANES):
                    _add_lanes(flat, source + c, flat_hist, target + c)
                if with_own:
                    own[b, labels[i]] += u[i, labels[i]]


@njit(cache=True, nogil=True, fastmath=False)
def _offer(c, value, score, feature, cut, kind, values, scores, places):
    """Keep a learner among the best of class `c` if it is better than the worst of them; first come wins."""
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
    places[c, k, 0] = feature
    places[c, k, 1] = cut
    places[c, k, 2] = kind


@njit(cache=True, nogil=True, fastmath=False)
def merge_best(values, scores, places, into_values, into_scores, into_places):
    """Offer what one part found to the best so far; parts must come in the order of their features."""
    for c in range(values.shape[0]):
        for k in range(values.shape[1]):
            if values[c, k] > 0.0:
                feature, cut, kind = places[c, k]
                _offer(
                    c, values[c, k], scores[c, k], feature, cut, kind, into_values, into_scores, into_places
                )


@njit(cache=True, nogil=True, fastmath=False)
def find_cuts(
    lo, hi, first_feature, n_edges, zero, missing, has_zeros, firsts, totals, own_totals, n_classes, rays,
    gini, hist, own, values, scores, places,
):  # fmt: skip
    """Offer the cuts of columns ``lo`` to ``hi`` whose value is a local maximum among its neighbours.

    Neighbouring cuts are nearly the same learner, so a peak stands for its slope.

    Parameters
    ----------
    lo, hi, first_feature : int
        Columns of a block, and the feature of its first column.
    n_edges, zero : int64 arrays of shape (n_columns,)
        Edges of each column and the code of 0 in it.
    missing, has_zeros : bool arrays of shape (n_columns,)
        Whether the column has NaN, and samples without an entry.
    firsts, hist, own
        See `add_histograms`; overwritten.
    totals, own_totals : float64 arrays of shape (width,)
        Sums over all samples.
    n_classes : int
    rays : bool
        Look for rays instead of stumps.
    gini : bool
        Order by the impurity left by the cut instead of by the score, as the root of a tree needs:
        ``G_l²/W_l + G_r²/W_r`` with the sums G of u and W of ``|u|``.
    values, scores : float64 arrays of shape (n_classes, n_best)
        Falling value, and the score (signed; of the learner +1 above the cut), of the best learners.
    places : int64 array of shape (n_classes, n_best, 3)
        Feature, cut, kind.
    """
    for j in range(lo, hi):
        m = n_edges[j]
        if m == 0 and not missing[j]:
            continue
        h = hist[firsts[j - lo] : firsts[j - lo] + m + 2]
        o = own[firsts[j - lo] : firsts[j - lo] + m + 2] if gini else own
        if has_zeros[j]:
            for c in range(n_classes):
                rest = totals[c]
                for b in range(m + 2):
                    rest -= h[b, c]
                h[zero[j], c] += rest
                if gini:
                    rest = own_totals[c]
                    for b in range(m + 2):
                        rest -= o[b, c]
                    o[zero[j], c] += rest
        feature = first_feature + j
        for c in range(n_classes):
            if rays:
                mass = 0.0
                for b in range(min(zero[j], m)):
                    mass += h[b, c]
                    _offer(c, abs(mass), mass, feature, b, BELOW, values, scores, places)
                mass = 0.0
                for b in range(m - 1, zero[j] - 1, -1):
                    mass += h[b + 1, c]
                    _offer(c, abs(mass), mass, feature, b, ABOVE, values, scores, places)
                continue
            for kind in range(2 if missing[j] else 1):
                below = h[m + 1, c] if kind == MISSING_BELOW else 0.0
                own_below = o[m + 1, c] if gini and kind == MISSING_BELOW else 0.0
                before, last, last_score = -1.0, -1.0, 0.0
                # With missing values the cut above all edges separates them from the rest.
                stop = m + 1 if kind == MISSING_ABOVE and missing[j] else m
                for b in range(stop):
                    below += h[b, c]
                    score = totals[c] - 2.0 * below
                    value = abs(score)
                    if gini:
                        own_below += o[b, c]
                        value = _purity(below, own_below, totals[c], own_totals[c])
                    if last >= before and last > value:
                        _offer(c, last, last_score, feature, b - 1, kind, values, scores, places)
                    before, last, last_score = last, value, score
                if stop and last >= before:
                    _offer(c, last, last_score, feature, stop - 1, kind, values, scores, places)


@njit(cache=True, nogil=True, fastmath=False)
def _purity(below, own_below, total, own_total):
    """Return ``G²/W`` summed over both sides; W = sum |u| = 2 (sum of u at the own class) - G."""
    above = total - below
    weight_below = 2.0 * own_below - below
    weight_above = 2.0 * (own_total - own_below) - above
    value = 0.0
    if weight_below > 0.0:
        value += below * below / weight_below
    if weight_above > 0.0:
        value += above * above / weight_above
    return value
