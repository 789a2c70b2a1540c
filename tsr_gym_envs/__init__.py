"""The worlds of tsr-gym, one folder each."""
