"""A fixed set of datasets, models and predictions, and the SHA-256 of every file of them.

    python -m golden.record        # in tests/: after a change that is meant to change bytes

The sums hold for the packages and the processor they were recorded with: other versions of the codecs write
other bytes, and other processors round sums otherwise.
"""
