"""Code that two or more packages share. It does not import those packages."""
