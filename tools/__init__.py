"""Programs for those who work on Etude; no part of the package."""
