"""Reproduction of the paper's tables and figures: runs, their records, and result pages."""
