"""One source of samples: a file, an address, an array or a table, and how its bytes are read."""
