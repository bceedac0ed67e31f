"""A run's policy for others: a folder, or a repository on a hub, with a card, and without what is nobody's business."""
