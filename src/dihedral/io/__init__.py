"""Input and output: atomic files, folder locks and JSON lines."""
