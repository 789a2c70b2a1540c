"""Games for the Z-machine, played by an interpreter in a process of its own that may hang or end."""
