"""Search for the settings of boosting, and for a sum of a linear and a boosted model."""
