"""Datasets on disk: layout, shards, blocks, publication."""
