"""Dreamer: learn what actions lead to, and to act within that. What it expects can be looked at."""

import sys

import torch

import etude
from etude.using.stored_policy import open_policy
from etude.workflows.recurrent_model import ModelWorkflow

if __name__ == "__main__":
    # Without stored latents a window can begin anywhere, with nothing in mind: that of an episode below does.
    run = etude.train("CartPole-v1:dreamer", "algorithm.latents=off", *sys.argv[1:])
    print(run.evaluate(10).metrics())

    # Let the model see half of an episode, go on by the actions alone, and compare with what came.
    stored = open_policy(run)
    _, environment = stored.with_environment(num_envs=1)
    workflow = stored.workflow(environment)
    assert isinstance(workflow, ModelWorkflow)
    environment.close()
    (path,) = etude.play(run.path, 1, max_steps=40)
    steps = path["length"]
    actions = torch.from_numpy(path["actions"])
    before = torch.zeros(steps, 2)  # one-hot; nothing before the first
    before[1:] = torch.nn.functional.one_hot(actions[:-1].long(), 2).float()
    window = {
        "observation": torch.from_numpy(path["observations"]),
        "next_observation": torch.from_numpy(path["next_observations"]),
        "action": actions,
        "previous_action": before,
        "reward": torch.from_numpy(path["rewards"]).float(),
        "terminated": torch.from_numpy(path["terminated"]),
        "is_first": torch.arange(steps) == 0,
    }
    window = {name: part[None] for name, part in window.items()}  # (1, L, ...)
    seen = steps // 2
    found = workflow.open_loop(window, seen, steps - seen, generator=torch.Generator().manual_seed(0))
    # Predictions are symlog'd: the sign times log(1 + |x|).
    came = found.observed[seen:]
    error = (found.predicted - came.sign() * came.abs().log1p()).abs().mean(dim=(1, 2))
    print(f"{steps} steps, {seen} of them seen; the error of a prediction after 1 and {len(error)} steps:", error[0], error[-1])
