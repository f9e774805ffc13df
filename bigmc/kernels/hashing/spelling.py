"""The n-grams of folded documents one by one, to list them instead of only counting them."""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.hashing.arguments import FoldedText, Int, Longs, NGrams, Words

WORD, CHAR, CHAR_WB = 0, 1, 2


@inlined_kernel
def _measure_reach(documents: FoldedText, first: Int, last: Int, narrow: bool, reach: Words) -> Int:
    """As in `bigmc.kernels.hashing.ngrams`: a kernel and what it calls are in one file.

    Length of the piece from each character of a padded text to the next space; the number of words.
    """
    folded, bound, _ = documents
    start = np.int64(bound[first])
    n_spaces = 0
    end = last - first - 1
    for i in range(end, -1, -1):
        reach[i] = end - i + 1
        space = folded[start + i if narrow else np.int64(bound[first + i])] == 0x20
        n_spaces += space
        end = i if space else end
    return n_spaces - 1


@kernel
def spell_rows(
    place: Longs,
    n_rows: Int,
    documents: FoldedText,
    ngrams: NGrams,
    reach: Words,
    starts: Words,
    sizes: Words,
) -> Int:
    """List the n-grams of folded documents: where in their text each begins and how long it is.

    Resumes at ``place``, the (document, n, unit) to come next, until the documents end or the lists are
    full; returns the number of n-grams listed. Order and multiplicity are as scikit-learn's analyzers have
    them, but for the order within a document.
    """
    folded, bound, units = documents
    analyzer, n_min, n_max = ngrams
    gap = 1 if analyzer == WORD else 0
    n_listed = 0
    capacity = starts.shape[0] - 1
    while place[0] < n_rows:
        first = units[place[0]]
        n_units = units[place[0] + 1] - first
        narrow = False
        if analyzer != WORD:
            narrow = np.int64(bound[first + n_units]) - np.int64(bound[first]) == n_units
        if analyzer == CHAR_WB and n_units > 0:
            _measure_reach(documents, first, first + n_units, narrow, reach)
        while place[1] <= min(n_max, max(n_units, n_min)):
            n = place[1]
            while place[2] < n_units:
                i = place[2]
                if n_listed >= capacity:
                    return n_listed
                place[2] += 1
                length = n
                twice = False
                if analyzer == CHAR_WB:
                    start = np.int64(bound[first]) + i if narrow else np.int64(bound[first + i])
                    if reach[i] < n:
                        # A word shorter than the smallest n counts as a whole.
                        if n > n_min or folded[start] != 0x20 or i == n_units - 1:
                            continue
                        length = np.int64(reach[i])
                    twice = n == 1 and folded[start] == 0x20 and 0 < i < n_units - 1
                elif i + n > n_units:
                    continue
                if narrow:
                    start = np.int64(bound[first]) + i
                    size = length
                else:
                    start = np.int64(bound[first + i])
                    size = np.int64(bound[first + i + length]) - gap - start
                for _ in range(2 if twice else 1):
                    starts[n_listed] = start
                    sizes[n_listed] = size
                    n_listed += 1
            place[1] += 1
            place[2] = 0
        place[0] += 1
        place[1] = n_min
    return n_listed
