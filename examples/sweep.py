"""Search for settings over whole trainings, and see what the best are worth with seeds that the search never saw."""

import sys

import etude
from etude.tuning.functions import optimise

SPACE = {
    "algorithm.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    "algorithm.rollout_steps": [16, 32, 64],
}
TRIALS, SEEDS = 8, (11, 12, 13)


def trained(words, seed):
    """Return the mean return after a short training."""
    run = etude.train("CartPole-v1:ppo", "training.total_steps=20_000", f"experiment.seed={seed}", *words, *sys.argv[1:])
    return float(run.evaluate(20).returns.mean())


def objective(algorithm_learning_rate, algorithm_rollout_steps):
    """One trial: dots of keys are underscores here."""
    words = (f"algorithm.learning_rate={algorithm_learning_rate}", f"algorithm.rollout_steps={algorithm_rollout_steps}")
    return trained((*words, "algorithm.batch_size=64"), seed=1)


if __name__ == "__main__":
    study = optimise(objective, SPACE, method="random", trials=TRIALS)
    (best,) = study.best(1)
    print(best.settings)
    # The best of several trials was lucky too; new seeds tell how much.
    words = [f"{key}={value}" for key, value in best.settings.items()]
    print([trained((*words, "algorithm.batch_size=64"), seed) for seed in SEEDS])
