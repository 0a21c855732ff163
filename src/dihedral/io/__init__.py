"""Input and output: atomic files, the lock on folders, tables, JSON lines, and limits on what files decode to."""
