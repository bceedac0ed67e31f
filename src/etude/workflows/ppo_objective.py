"""What PPO minimises over a minibatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from etude.buffers.base import Batch
from etude.components.networks.encoder import ACTION_MASK
from etude.components.networks.head import Head, outputs_of_both
from etude.components.rollout_preparation import standardize
from etude.components.symmetry import mirror_error, with_images
from etude.environments.mirror import Mirror

if TYPE_CHECKING:
    from etude.workflows.ppo import PPOConfig


class Objective(nn.Module):
    """The loss of a minibatch: clipped surrogate, value error and entropy bonus."""

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module,
        head: nn.Module,
        settings: PPOConfig,
        hyper: Mapping[str, Tensor],
        evaluate: Callable[[nn.Module, Batch, str], Tensor],
        mirror: Mirror | None = None,
    ) -> None:
        super().__init__()
        self.actor, self.critic, self.head = actor, critic, head
        self.settings, self.hyper, self._evaluate = settings, dict(hyper), evaluate
        self._mirror = mirror

    def whole_batch(self, batch: Batch) -> Batch:
        """Scale the advantages of a minibatch, before it is cut into pieces."""
        if self.settings.normalize_advantages != "batch":
            return batch
        return {**batch, "advantages": standardize(batch["advantages"])}

    def _outputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return what actor and critic say; where the critic is a head on the actor, what they share is computed once."""
        if isinstance(self.critic, Head):
            outputs, values = outputs_of_both(self.actor, self.critic, batch["observation"])
        else:
            outputs, values = self._evaluate(self.actor, batch, "actor"), self._evaluate(self.critic, batch, "critic")
        return outputs, values.squeeze(-1)

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and what to log of it."""
        settings, clip, mirror = self.settings, self.hyper["clip_range"], self._mirror
        count = len(batch["log_prob"])
        if mirror is not None and settings.symmetry == "augment":
            batch = with_images(batch, mirror)
        mask = batch["observation"].get(ACTION_MASK) if isinstance(batch["observation"], dict) else None
        outputs, values = self._outputs(batch)
        distribution = self.head(outputs, mask)
        advantages = batch["advantages"]

        log_ratio = distribution.log_prob(batch["sample"]) - batch["log_prob"]
        ratio = log_ratio.exp()
        policy_loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()

        errors = (values - batch["returns"]).square()
        if settings.clip_value_loss is not None:
            near = batch["values"] + (values - batch["values"]).clamp(-settings.clip_value_loss, settings.clip_value_loss)
            errors = torch.maximum(errors, (near - batch["returns"]).square())
        value_loss = errors.mean()
        entropy = distribution.entropy().mean()
        loss = policy_loss + self.hyper["value_coef"] * value_loss - self.hyper["entropy_coef"] * entropy
        # KL(old‖new) ≈ E[(r-1) - log r]: unbiased and never negative (Schulman, "Approximating KL divergence"). Mirror images
        # were not drawn from the old policy and say nothing about it.
        ratio, log_ratio = ratio[:count], log_ratio[:count]
        kl = ((ratio - 1) - log_ratio).detach().mean()
        clipped = ((ratio - 1).detach().abs() > clip).float().mean()
        more = {}
        if mirror is not None and settings.symmetry == "loss":
            image = {"observation": mirror.observe(batch["observation"])}
            in_mirror = self.head(self._evaluate(self.actor, image, "actor")).mode()
            error = more["train/symmetry_loss"] = mirror_error(distribution.mode(), in_mirror, mirror)
            loss = loss + settings.symmetry_coef * error
        return loss, {
            **more,
            "train/policy_loss": policy_loss,
            "train/value_loss": value_loss,
            "train/entropy": entropy,
            "train/approx_kl": kl,
            "train/clip_fraction": clipped,
        }
