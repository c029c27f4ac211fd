"""The paper's experiments: computed cell by cell, and set beside its figures."""
