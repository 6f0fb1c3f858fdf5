"""Speed as a ratio, both sides in one run."""
