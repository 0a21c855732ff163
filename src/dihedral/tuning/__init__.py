"""Hyper-parameter search: a grid, or trials proposed by Optuna."""
