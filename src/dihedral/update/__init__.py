"""Changes of graphs and of the models trained on them."""
