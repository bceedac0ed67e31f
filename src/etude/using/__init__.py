"""Everything that needs only a trained policy: measuring, playing, driving, trials, pictures."""
