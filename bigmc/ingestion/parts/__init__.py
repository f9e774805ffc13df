"""Sources found and cut into parts, which any worker reads, again after a kill."""
