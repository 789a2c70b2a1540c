"""Reports: what runs, models and scores are worth: tables, findings, calibration."""
