"""Serve models over HTTP, with the explorer as web interface (`pip install 'dihedral[serve]'`)."""
