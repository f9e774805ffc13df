"""Sources listed and cut into parts; any worker can read a part, again after a kill."""
