"""The same weights and the same batch through Etude's losses and through Stable-Baselines3's."""
