"""TextWorld: generated text adventures, played in TextWorld's own interpreter with snapshots of its memory."""
