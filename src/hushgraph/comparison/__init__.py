"""Five models side by side on one split: what neighbours are worth, and what privacy costs."""
