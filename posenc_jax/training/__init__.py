"""State, optimizer, step, loop, checkpoints, trackers. Knows no objective and no model by name."""
