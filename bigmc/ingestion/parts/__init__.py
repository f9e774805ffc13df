"""List sources and split them into parts, which any worker can read again."""
