"""Vector environments in tensors: the contract, the factory, exact snapshots."""
