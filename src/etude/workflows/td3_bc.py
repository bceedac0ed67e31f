"""TD3+BC (Fujimoto and Gu 2021): TD3 on a dataset, whose actor also stays near what was done.

    actor     loss = − λ Q₁(s, π(s)) + w |π(s) − a|²,   λ = alpha / mean |Q₁|

w is 1 on the dataset alone, and `finetune_bc` while fine-tuning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from etude.components.critics import with_action
from etude.components.normalizers import ObservationNormalizer
from etude.config.constraints import NonNegativeFloat, PositiveFloat, PositiveSchedule
from etude.config.schedules import Schedule
from etude.learning.update import Batch, Metrics
from etude.workflows.base import Context
from etude.workflows.offline import scale_of_data
from etude.workflows.offline_to_online import OfflineToOnline, OfflineToOnlineConfig
from etude.workflows.td3 import TD3, TD3Config


@dataclass(frozen=True)
class TD3BCConfig(OfflineToOnlineConfig, TD3Config):
    """TD3 on a dataset, with behaviour cloning."""

    name: str = "td3_bc"
    """The registered name of the algorithm."""
    learning_rate: PositiveSchedule = Schedule.constant(3e-4)
    """Step size. Higher learns faster and breaks sooner; lin_3e-4 lowers it to 0 over the run."""
    alpha: PositiveFloat = 2.5
    """What the critics count beside the dataset. Higher leaves what was done further behind."""
    finetune_bc: NonNegativeFloat = 0.4
    """What staying near the batch's actions counts while fine-tuning. 0 is TD3 from there on."""


class TD3BC(OfflineToOnline, TD3):
    """TD3 whose actor stays near the dataset."""

    Config = TD3BCConfig
    settings: Any

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Two layers of 256."""
        network = {"type": "mlp", "hidden_dims": [256, 256], "activation": "relu"}
        return {"actor": network, "critic": dict(network)}

    def observation_scale(self, context: Context) -> ObservationNormalizer:
        """That of the dataset."""
        return scale_of_data(context, self.settings.normalize)

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Climb the first critic, and stay near what was done."""
        observation = self.normalizer(batch["observation"])
        action = self.head(self.actor(observation)).mode()
        value = self.critic(with_action(observation, action))[0]
        away = (action - batch["sample"]).square().mean()
        weight = 1 + self.is_online * (self.settings.finetune_bc - 1)
        scale = self.settings.alpha / value.detach().abs().mean().clamp_min(1e-6)
        return weight * away - scale * value.mean(), {"train/action_error": away.detach().sqrt()}
