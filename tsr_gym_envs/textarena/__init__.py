"""TextArena's games for one player, replayed in a process whose generators belong to them alone."""
