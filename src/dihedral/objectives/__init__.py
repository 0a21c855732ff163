"""Objectives: losses over sampled negatives or all entities, with regularisers, negatives and walks."""
