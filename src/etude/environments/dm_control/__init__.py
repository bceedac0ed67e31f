"""DeepMind's Control Suite as Gymnasium environments and as one vector environment."""
