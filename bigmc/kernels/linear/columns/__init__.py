"""Optimality and block coordinate steps over columns.

`composite` has them for any loss and any penalty, with the sums over a column of `loss_columns`;
`squared_hinge` for the group lasso, with those of `hinge_columns`; `log_columns` where the derivatives of the
log loss are kept of each sample, with those of `log_sums`.
"""
