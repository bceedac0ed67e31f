"""Gymnasium's Box2D tasks that we draw and step faster, to the same bits."""
