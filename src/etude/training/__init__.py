"""One sitting of training: what a run is built from, begun, continued and stopped."""
