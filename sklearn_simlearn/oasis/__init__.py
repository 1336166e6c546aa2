"""Online learning of a bilinear similarity from triplets."""

from sklearn_simlearn.oasis._oasis import OASIS

__all__ = ["OASIS"]
