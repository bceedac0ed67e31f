"""MiniGrid and BabyAI as a policy can read them: no text, and a picture, codes or a vector for what is seen."""
