"""Steps over samples in row order.

`newton` and `newton_rows` have the gradients and products with the Hessian of Newton steps, `log_rows` the
residuals of the log loss that are kept of each sample, `dual_descent` the steps of dual variables, and
`stochastic` and `variance_reduced` weights that follow one sample after another.
"""
