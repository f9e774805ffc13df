"""What a column becomes: features, labels or weights."""
