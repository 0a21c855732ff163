"""Models over HTTP, and the explorer: a web page to look at them (`pip install 'dihedral[serve]'`)."""
