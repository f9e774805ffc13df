"""Resumable training runs, and the choice among several models."""
