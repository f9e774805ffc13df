"""Penalties of a row of weights.

`formulas` has the dual norms and proximal operators of each, `optimality` how far gradients are from its
conditions, `projections` how far a step takes a gradient back to its dual ball, and `group_model` the
minimum of a quadratic model with the group lasso.
"""
