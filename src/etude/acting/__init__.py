"""Acting: whoever chooses actions, how that runs, and what becomes of the steps that follow."""
