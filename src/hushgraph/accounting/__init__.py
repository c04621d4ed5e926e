"""What steps cost: events, the two accountants, and the search for noise or steps within a budget."""
