"""Kernels of the sparse linear learner.

`columns` and `rows` take steps of the weights, over the columns and over the rows of the samples, with the
formulas of `losses` and `penalties`; `parallel` has the vector instructions and threads that all are made of.
`scoring` stands beside the steps. `arguments` are the arrays that belong together.
"""
