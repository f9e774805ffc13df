"""Search on held-out rows for the settings of linear models, and judge any model on them."""
