"""Hyper-parameter search: `space` has the values to search, and `search` trains them with Optuna."""
