"""What a run tells: metric rows, the files and services they go to, and what the user sees."""
