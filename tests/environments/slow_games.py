"""The rules of the arcade-like games once more, one copy and one `if` at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from etude.environments.tensors.arcade import BrickWall, FruitFall, RoadCrossing

States = dict[str, torch.Tensor]


def brick_wall(state: States, actions: list[int], chance: torch.Generator) -> dict[str, list[Any]]:
    found: list[dict[str, Any]] = []
    for i, action in enumerate(actions):
        one = {name: value[i].tolist() for name, value in state.items()}
        if action == 1:
            one["paddle"] = max(0, one["paddle"] - 1)
        elif action == 2:
            one["paddle"] = min(9, one["paddle"] + 1)
        came_from = one["x"], one["y"]
        x, y = one["x"] + one["dx"], one["y"] + one["dy"]
        if x < 0 or x > 9:
            x = 0 if x < 0 else 9
            one["dx"] = -one["dx"]
        reward, lost, inside = 0.0, False, False
        if y < 0:
            y, one["dy"] = 0, -one["dy"]
        elif 1 <= y <= 3 and one["bricks"][(y - 1) * 10 + x]:
            inside = True
            if not one["struck"]:
                reward, one["bricks"][(y - 1) * 10 + x] = 1.0, False
                y, one["dy"] = came_from[1], -one["dy"]
        elif y == 9:
            if came_from[0] == one["paddle"]:
                y, one["dy"] = came_from[1], -one["dy"]
            elif x == one["paddle"]:
                y, one["dy"], one["dx"] = came_from[1], -one["dy"], -one["dx"]
            else:
                lost = True
        one |= {"x": x, "y": y, "struck": inside, "reward": reward, "terminated": lost or not any(one["bricks"])}
        found.append(one)
    return _by_name(found)


def road_crossing(state: States, actions: list[int], chance: torch.Generator) -> dict[str, list[Any]]:
    found = []
    for i, action in enumerate(actions):
        one = {name: value[i].tolist() for name, value in state.items()}
        before = one["row"]
        if one["rests"] == 0:
            one["row"] = max(0, min(9, one["row"] + (action == 2) - (action == 1)))
        if one["row"] != before:
            one["rests"] = 1
        elif one["rests"] > 0:
            one["rests"] -= 1
        for lane in range(8):
            one["wait"][lane] -= 1
            if one["wait"][lane] == 0:
                one["car"][lane] = (one["car"][lane] + (1 if one["pace"][lane] > 0 else -1)) % 10
                one["wait"][lane] = abs(one["pace"][lane])
        one["reward"], one["terminated"] = 0.0, False
        if one["row"] == 0:
            one["row"], one["reward"] = 9, 1.0
        elif 1 <= one["row"] <= 8 and one["car"][one["row"] - 1] == 4:
            one["row"] = 9
        found.append(one)
    return _by_name(found)


def fruit_fall(state: States, actions: list[int], chance: torch.Generator) -> dict[str, list[Any]]:
    columns = torch.randint(0, 10, (len(actions), 2), generator=chance).tolist()
    luck = torch.empty(len(actions), 2).uniform_(generator=chance).tolist()
    found = []
    for i, action in enumerate(actions):
        one = {name: value[i].tolist() for name, value in state.items()}
        one["at"] = max(0, min(9, one["at"] + (action == 2) - (action == 1)))
        one["reward"] = 0.0
        for k in range(2):
            one["row"][k] += 1
            if one["row"][k] < 9:
                continue
            is_caught = one["column"][k] == one["at"]
            if is_caught:
                one["reward"] += 1.0 if one["good"][k] else -1.0
            if is_caught != one["good"][k]:
                one["lives"] -= 1
            one["row"][k], one["column"][k], one["good"][k] = 0, columns[i][k], luck[i][k] < 2 / 3
        one["terminated"] = one["lives"] <= 0
        found.append(one)
    return _by_name(found)


def _by_name(found: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [one[name] for one in found] for name in found[0]}


SLOW_GAMES: dict[type[Any], Callable[[States, list[int], torch.Generator], dict[str, list[Any]]]] = {
    BrickWall: brick_wall,
    RoadCrossing: road_crossing,
    FruitFall: fruit_fall,
}
