"""Workers: searches of a run in other processes, here or on other machines, with the results of one process."""
