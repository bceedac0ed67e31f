"""`etude ui`: a web app for the runs of one folder, served to this machine alone unless its user says otherwise."""
