"""Tests of tsr-gym, one folder per room."""
