"""MultiBoost^cw: boosting by column generation with learners of each class's own (Lin et al. 2012)."""
