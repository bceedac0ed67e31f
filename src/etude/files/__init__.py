"""Files and text that may be a stranger's: opened, read, parsed and printed within limits. Everybody may use it."""
