"""Reports of runs and of groups of runs, as Markdown and as pages that stand alone."""
