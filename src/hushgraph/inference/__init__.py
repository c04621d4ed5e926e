"""Predictions and accuracies of a trained model."""
