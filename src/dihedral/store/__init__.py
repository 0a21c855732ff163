"""Trained models on disk: the model folder, its card, and exports for other programs."""
