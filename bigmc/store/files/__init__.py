"""Files that survive a kill: the calls to the disk, atomic writes, the manifest, object stores."""
