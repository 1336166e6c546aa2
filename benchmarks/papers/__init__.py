"""The experiments of the five papers, with the published figures beside ours."""
