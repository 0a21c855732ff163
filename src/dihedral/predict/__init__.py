"""Answers of a trained model: the scorer, the predictor, top-k, paths, calibration, fold-in and batch completion."""
