"""Learning: from groups of trajectories to a better policy: batch, advantages, losses, learner."""
