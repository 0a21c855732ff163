"""Scores of candidates, ids in and ids out."""
