"""A package, so that fixtures of its scope end with its tests.

Without this file pytest keeps the clusters until the whole run ends, and even idle ones take processor time.
"""
