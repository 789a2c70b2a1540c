"""Reports: tables of runs and models, findings about a run, and the viewer."""
