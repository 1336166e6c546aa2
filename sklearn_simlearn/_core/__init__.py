"""Code that two or more packages share. It imports nothing above it."""
