"""Predictions and accuracies of a trained model, on graphs in memory and stored graphs."""
