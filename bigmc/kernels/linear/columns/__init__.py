"""Optimality and block coordinate steps over columns.

`composite` has them for any loss and any penalty, with the sums over a column of `loss_columns`;
`squared_hinge` for the multiclass squared hinge with the group lasso, with those of `hinge_columns`; and
`log_columns` for the log loss whose derivatives are kept of each sample, with those of `log_sums`.
"""
