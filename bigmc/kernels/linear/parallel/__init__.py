"""Work at once within a kernel: vector instructions on groups of classes, and threads that share a column.

`simd` has the instructions, `exponentials` and `products` what kernels make of them; `team` shares out the
pieces of a column with the atomic numbers of `atomics`.
"""
