"""Losses and penalties, each one small object."""
