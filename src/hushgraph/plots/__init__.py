"""Drawing with matplotlib: the common look of figures, and the figure of a comparison."""
