"""Learn similarities that rank: retrieval in scikit-learn terms."""

__version__ = "0.1.0"
