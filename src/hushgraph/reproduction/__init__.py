"""The paper's tables, figures and ablations: as data, run again, and compared with the published numbers."""
