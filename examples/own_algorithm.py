"""An algorithm of your own: say how to act and what one gradient step is. The loop does the rest, exact resume included."""

import sys
from dataclasses import dataclass

import torch

import etude
from etude.components.distributions import Categorical
from etude.components.returns import discounted_returns
from etude.config.registry import register_algorithm
from etude.testing import check_workflow
from etude.workflows.base import ActResult, AlgorithmConfig, NetworkSpec, Workflow


@dataclass(frozen=True)
class BestOfConfig(AlgorithmConfig):
    """Settings: each is checked, documented and swept like those of Etude's own algorithms."""

    rollout_steps: int = 256
    """Vector steps between two gradient steps."""
    share: float = 0.3
    """Which share of the actions is imitated: those with the highest return to come."""
    gamma: float = 0.98
    """How much the next step counts."""


@register_algorithm("best_of")
class BestOf(Workflow):
    """The cross-entropy method: do again what turned out best."""

    Config = BestOfConfig

    @classmethod
    def default_networks(cls):
        """One network, whose settings are network.actor.…"""
        return {"actor": {"type": "mlp", "hidden_dims": [64], "activation": "tanh"}}

    @classmethod
    def roles(cls, config, observation_space, action_space):
        """A logit for each action."""
        return {"actor": NetworkSpec(int(action_space.n), output_gain=0.01)}

    def initialize(self, context):
        """Whatever has a state_dict is saved with the run."""
        super().initialize(context)
        self.optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-2)

    def act(self, observation, state, is_first, *, mode, generator):
        """Draw an action for each row, or take the likeliest."""
        policy = Categorical(self.actor(observation))
        return ActResult(policy.mode() if mode == "greedy" else policy.sample(generator), state)

    def learn(self, batch):
        """Imitate the best actions of a rollout (T, N)."""
        ended = batch["terminated"] | batch["truncated"]
        beyond = torch.zeros_like(batch["reward"])
        returns = discounted_returns(batch["reward"], beyond, batch["terminated"], ended, self.settings.gamma)
        best = returns >= returns.quantile(1 - self.settings.share)
        log_prob = Categorical(self.actor(batch["observation"])).log_prob(batch["action"])
        loss = -(log_prob * best).sum() / best.sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss, "imitated_above": returns[best].min()}


if __name__ == "__main__":
    # Mistakes that a learning curve hides: state that is not saved, randomness of its own, ends that are mixed up.
    print(check_workflow("best_of", only=["resume", "chunk_law", "same_seed"]))
    run = etude.train("CartPole-v1:best_of", "training.total_steps=100_000", *sys.argv[1:])
    print(run.evaluate(100).metrics())
