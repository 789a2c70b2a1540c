"""Countdown: reach a target number from given numbers by arithmetic."""
