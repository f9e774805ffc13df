"""Feature hashing of text and categories, bit for bit as scikit-learn does it."""
