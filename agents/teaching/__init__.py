"""Teaching: the embedded base models, which learn by imitation, and supervised steps before a run begins."""
