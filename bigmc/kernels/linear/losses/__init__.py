"""Losses as kernels know them: each an empty named tuple, whose type alone chooses the code.

A kernel is compiled for the loss that it is called with. To add a loss: a module in this folder with a class
like the others, and its value, dual and intercept in `bigmc.objectives.losses`.
"""
