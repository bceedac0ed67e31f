"""One module for each side: run by the python that has its packages, answers with one JSON line."""
