"""Answers by name: the Predictor, completion of many questions, evaluation, reviewing and training as one call."""
