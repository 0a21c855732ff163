"""Files that are written whole or not at all, folder locks and JSON lines."""
