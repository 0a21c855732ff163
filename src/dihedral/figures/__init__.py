"""Figures drawn with matplotlib from records, studies and explanations; requires the `plots` extra."""
