"""The mechanism of all group-relative estimators: a table of turns, backups, contrasts, and one estimate of both."""
