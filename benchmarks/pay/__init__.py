"""The study of when search in training pays: its plan, its runs, and what they show."""
