"""Episodes: from a task to trajectories: environments of a run, searches, plain play, and intervals."""
