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


def discounted_lambda_returns(rewards: Tensor, discounts: Tensor, next_values: Tensor, td_lambda: float | Tensor) -> Tensor:
    """TD(λ) where each step has a discount of its own: G[t] = r[t] + d[t] ((1-λ[t]) V'[t] + λ[t] G[t+1]). All (T, N).

    What follows the last step is its V' alone. λ[t] = 0 where nothing flows back from the next row.
    """
    traces = discounts * td_lambda
    interim = rewards + (discounts - traces) * next_values
    following = next_values[-1]
    returns: list[Tensor] = []
    for t in range(len(rewards) - 1, -1, -1):
        following = torch.addcmul(interim[t], traces[t], following)
        returns.append(following)
    return torch.stack(returns[::-1])


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


def reward_to_go(rewards: Tensor, ended: Tensor, gamma: float) -> Tensor:
    """G[t] = r[t] + γ r[t+1] + ... to the end of the episode, or of the stretch; nothing is bootstrapped. All (T, N)."""
    returns = torch.empty_like(rewards)
    running = torch.zeros_like(rewards[0])
    carries = gamma * (~ended).to(rewards.dtype)
    for t in range(len(rewards) - 1, -1, -1):
        running = torch.addcmul(rewards[t], carries[t], running, out=returns[t])
    return returns


def episode_returns(rewards: Tensor, ended: Tensor, gamma: float) -> Tensor:
    """Give every step of an episode the return of its first step (in this stretch). All (T, N)."""
    returns = reward_to_go(rewards, ended, gamma)
    for t in range(1, len(rewards)):
        returns[t] = torch.where(ended[t - 1], returns[t], returns[t - 1])
    return returns


def in_whole_episodes(ended: Tensor, cut: Tensor | None = None) -> Tensor:
    """Return which steps (T, N) belong to an episode that ends in this stretch; one that is `cut` after a step does not."""
    whole = ended.clone()
    for t in range(len(ended) - 2, -1, -1):
        following = whole[t + 1] if cut is None else whole[t + 1] & ~cut[t]
        whole[t] |= following
    return whole


def v_trace(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    ended: Tensor,
    log_ratios: Tensor,
    gamma: float,
    *,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace targets and policy advantages (Espeholt et al. 2018, equation 1), for data of an older policy. All (T, N).

    `log_ratios` are log π/μ of the actions taken. With equal policies the targets are the Monte Carlo returns, bootstrapped
    at the stretch's end.
    """
    ratios = log_ratios.exp()
    rhos, traces = ratios.clamp(max=clip_rho), ratios.clamp(max=clip_c)
    next_values = next_values.masked_fill(terminated, 0)
    deltas = rhos * (rewards + gamma * next_values - values)
    carries = gamma * traces * ~ended
    corrections = torch.empty_like(deltas)
    running = torch.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        running = torch.addcmul(deltas[t], carries[t], running, out=corrections[t])
    targets = values + corrections
    # What follows a step is the next step's target, or the bare value where the episode or the stretch ends.
    following = torch.cat([targets[1:], next_values[-1:]])
    following = torch.where(ended, next_values, following)
    return targets, rhos * (rewards + gamma * following - values)
