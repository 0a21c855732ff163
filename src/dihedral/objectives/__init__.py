"""Objectives: losses over sampled negatives or all entities, with their regularisers, negatives and walks."""
