"""Losses as kernels know them: each an empty named tuple, whose type alone chooses the code.

A kernel that is given one is compiled for it. To add a loss: a module here with a class like those beside it,
and its value, dual and intercept in `bigmc.objectives.losses`.
"""
