"""The learners' optimisation loops."""
