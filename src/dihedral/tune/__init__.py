"""Hyper-parameter search: `grid` trains every combination, `optuna_search` lets Optuna propose and prune trials."""
