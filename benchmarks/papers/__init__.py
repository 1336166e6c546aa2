"""Experiments of the five papers, and tests of the claims that the papers make."""
