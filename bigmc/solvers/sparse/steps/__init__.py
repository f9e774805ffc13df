"""Steps that lower the objective: sweeps over columns, Newton steps, steps of the intercept."""
