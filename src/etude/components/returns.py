"""Returns and advantages over a stretch of experience, time-major (T, N).

Time runs like this; an episode that ends at step t is followed, in the same row, by the next episode's first step:

    observation[t] ─action[t]→ reward[t], next_value[t]      next_value[t] = V(where the transition really led)
                               terminated[t]: nothing follows, next_value does not count
                               ended[t] (terminated or truncated): nothing flows back across this line

So a time limit is bootstrapped with the value of the final observation, and no value crosses an episode's end.
"""

from __future__ import annotations

import torch
from torch import Tensor


def generalized_advantages(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    ended: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """GAE(λ), Schulman et al. 2016: A[t] = δ[t] + γλ A[t+1] within an episode. All (T, N)."""
    deltas = rewards + gamma * next_values.masked_fill(terminated, 0) - values
    carries = (gamma * gae_lambda) * (~ended).to(deltas.dtype)
    advantages = torch.empty_like(deltas)
    running = torch.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        running = torch.addcmul(deltas[t], carries[t], running, out=advantages[t])
    return advantages


def lambda_returns(
    rewards: Tensor, next_values: Tensor, terminated: Tensor, ended: Tensor, gamma: float, td_lambda: float
) -> Tensor:
    """TD(λ): G[t] = r[t] + γ ((1-λ) V' + λ G[t+1]), with G[t+1] replaced by V' where the episode or the stretch ends."""
    next_values = next_values.masked_fill(terminated, 0)
    returns = torch.empty_like(rewards)
    following = next_values[-1]
    for t in range(len(rewards) - 1, -1, -1):
        following = torch.where(ended[t], next_values[t], following)
        following = rewards[t] + gamma * ((1 - td_lambda) * next_values[t] + td_lambda * following)
        returns[t] = following
    return returns


def discounted_returns(rewards: Tensor, next_values: Tensor, terminated: Tensor, ended: Tensor, gamma: float) -> Tensor:
    """Monte Carlo returns, bootstrapped only where the stretch or a time limit cuts an episode."""
    return lambda_returns(rewards, next_values, terminated, ended, gamma, td_lambda=1.0)


def n_step_returns(rewards: Tensor, next_values: Tensor, terminated: Tensor, ended: Tensor, gamma: float, n: int) -> Tensor:
    """n rewards and then the value, fewer where the episode or the stretch ends first."""
    T = len(rewards)
    next_values = next_values.masked_fill(terminated, 0)
    returns = torch.zeros_like(rewards)
    weight = torch.ones_like(rewards)  # what the k-th reward after t still counts for; 0 once the episode has ended
    for k in range(min(n, T)):
        length = T - k
        live = weight[:length]
        returns[:length] += live * rewards[k:]
        # The value enters where the walk stops: after the n-th reward, at an end, or at the last row.
        stops = ended[k:].clone()
        stops[-1] = True
        if k == n - 1:
            stops[:] = True
        returns[:length] += live * gamma * (next_values[k:] * stops)
        weight[:length] = live * gamma * ~ended[k:]
    return returns
