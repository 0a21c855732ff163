"""Figures, drawn from data objects only; needs the `plots` extra."""
