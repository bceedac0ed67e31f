"""These pages as a site: `python -m tools.site build/site`."""
