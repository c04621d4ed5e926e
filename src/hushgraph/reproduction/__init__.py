"""The paper's tables, figures and ablations as data, and what runs them."""
