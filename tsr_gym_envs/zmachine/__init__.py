"""Games for the Z-machine, played by an interpreter in a child process, which can hang or end."""
