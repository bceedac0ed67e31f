"""Single components in files of their own: a policy, a value function, a network, a normaliser, an encoder."""
