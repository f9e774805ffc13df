"""Kernels of the sparse linear learner.

From the top: `scoring`; steps over the `columns` and over the `rows` of the samples; `losses` and
`penalties`; `parallel`, the vector instructions and threads that all are made of. `arguments` are the arrays
that belong together.
"""
