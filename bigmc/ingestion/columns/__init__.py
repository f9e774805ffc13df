"""Convert columns to features, labels or weights."""
