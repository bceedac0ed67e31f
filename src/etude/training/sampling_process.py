"""What a sampler is: an environment and a policy in a process of their own, which take steps when the learner asks for them.

`etude.workflows.sampling.link` has the other side, and says how they fit together.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from etude.acting.actor import Actor
from etude.acting.policy import State
from etude.acting.rollout import Into, Standing, rollout
from etude.acting.transfer import Transfer
from etude.buffers.rollout import RolloutBuffer
from etude.compute.random_streams import RandomStreams, derive_seed, seed_global_generators
from etude.compute.trees import map_tree, restored, storable
from etude.compute.world import World
from etude.config.compose import check
from etude.environments.failures import failure
from etude.environments.make import make_environment
from etude.environments.snapshots.rewind import RewindError
from etude.environments.vector import RAW_REWARD
from etude.errors import EnvironmentFailureError, EtudeError, UserError
from etude.training import assembly
from etude.workflows.sampling.link import CLOSE_S, receive, send

HERE = torch.device("cpu")


class Share(World):
    """One of the parts that copies are divided into, over samplers and ranks, which all take as many steps. Nothing is said."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__()
        self.rank, self.size = rank, size

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Weights come from the learner."""


class Held:
    """Stands for the learner's buffer: how much it will hold when a step is taken, as this part's share."""

    def __init__(self) -> None:
        self.size, self._capacity = 0, 0

    def stand_at(self, held: Sequence[Sequence[int]], rows_before: int, samplers: int) -> None:
        """Hold what the learner's buffers do, and the rows that come before the unit at hand."""
        self._capacity = sum(capacity for _, capacity in held) // samplers
        self.size = min(self._capacity, (sum(size for size, _ in held) + rows_before) // samplers)

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a vector step."""
        self.size = min(self._capacity, self.size + len(row["reward"]))

    @property
    def is_full(self) -> bool:
        """Whether no more fits."""
        return self.size >= self._capacity


class Heard:
    """What steps say besides their rows, in place of statistics, which are the learner's."""

    def __init__(self) -> None:
        self.info: list[dict[str, Tensor]] = []

    def add(self, reward: Tensor, ended: Tensor, raw_reward: Tensor | None = None) -> None:
        """Note a step."""
        self.info.append({} if raw_reward is None else {RAW_REWARD: raw_reward.clone()})

    def report(self, info: dict[str, Tensor]) -> None:
        """Note what the environment says of it."""
        self.info[-1] |= {key: value.clone() for key, value in info.items()}


class Service:
    """Answers the learner; the methods are the requests."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._requests: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._newest: dict[str, Any] = {}
        self._free_running = False
        threading.Thread(target=self._listen, name="etude-learner", daemon=True).start()

    def run(self) -> None:
        """Answer requests in order until the learner closes its end."""
        while (request := self._requests.get()) is not None:
            send(self._link, {"result": getattr(self, request.pop("do"))(**request)})

    def _listen(self) -> None:
        """Hear requests while steps are taken too: the learner never waits for one to be heard, and its end is noticed."""
        with suppress(EOFError, OSError):
            while True:
                request = receive(self._link)
                if request["do"] == "collect":
                    self._newest = request
                self._requests.put(request)
        self._requests.put(None)
        threading.Event().wait(CLOSE_S / 2)  # for what closes an environment
        os._exit(1)

    def build(self, settings: dict[str, Any], samplers: int, free_running: bool, number: int, rank: int) -> dict[str, Any]:
        """Make the copies and whoever acts in them."""
        config = check(settings)
        torch.set_num_threads(1)
        self._samplers, self._free_running = samplers, free_running
        seed_global_generators(derive_seed(config.experiment.seed, "sampler", rank, number))
        copies = config.environment.num_envs // samplers
        self._environment = make_environment(config.environment, num_envs=copies, training=True, device=HERE)
        self._streams = RandomStreams(config.experiment.seed, HERE, rank)
        self._held = Held()
        self._workflow = assembly.build_workflow(
            config,
            self._environment.single_observation_space,
            self._environment.single_action_space,
            streams=self._streams,
            buffers={"held": self._held},
            world=Share(rank * samplers + number, samplers * config.experiment.processes),
            action_repeat=self._environment.action_repeat,
        )
        self._actor = Actor(self._workflow, "explore", self._streams[f"action/{number}"])
        self._transfer = Transfer(HERE, HERE)
        self._standing: Standing | None = None
        return {"snapshot": self._environment.snapshot}

    def reset(self, seeds: list[int]) -> dict[str, Any]:
        """Begin new episodes in all copies."""
        observation, _ = self._environment.reset(seeds)
        count = self._environment.num_envs
        self._standing = Standing(observation, torch.ones(count, dtype=torch.bool), self._workflow.initial_state(count))
        return {"observation": observation, "snapshot": self._environment.snapshot}

    def collect(
        self, steps: int, units: int, rows_before: int, decisions_before: int, held: list[list[int]], **acting: Any
    ) -> dict[str, Any]:
        """Take vector steps with the weights that came with the request, or the newest that have come."""
        assert self._standing is not None, "reset() comes first"
        if self._free_running:
            units, acting = self._newest["units"], self._newest
        self._workflow.load_acting_state(acting, decisions_before)
        self._held.stand_at(held, rows_before, self._samplers)
        before: State = map_tree(torch.clone, storable(self._standing.state))
        rows, heard = RolloutBuffer(steps, device=HERE), Heard()
        into = Into((rows.add, self._held.add), heard, heard.report)  # type: ignore[arg-type] # as statistics take steps in
        rollout(self._environment, self._actor, into, self._standing, steps, self._transfer)
        self._environment.check()
        return {"columns": rows.columns, "state": before, "info": heard.info, "units": units}

    def state(self) -> dict[str, Any]:
        """Return where every episode stands."""
        standing = self._standing
        assert standing is not None
        return {
            "environment": self._environment.state_dict(),
            "observation": standing.observation,
            "is_first": standing.is_first,
            "state": storable(standing.state),
            "streams": self._streams.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> dict[str, Any]:
        """Continue every episode, where the environment can."""
        self._streams.load_state_dict(state["streams"])
        try:
            if not state["environment"]:
                return {"continues": False}
            self._environment.load_state_dict(state["environment"])
        except RewindError:
            return {"continues": False}
        carried = restored(state["state"], HERE, self._workflow.initial_state(self._environment.num_envs))
        observation = map_tree(torch.clone, state["observation"])
        self._standing = Standing(observation, state["is_first"].clone(), carried)
        return {"continues": True}

    def close(self) -> None:
        """Close the environment, if there is one."""
        environment = vars(self).get("_environment")
        if environment is not None:
            environment.close()


def main() -> None:
    """Be a sampler: the argument after the module's name is the descriptor of its socket."""
    link = socket.socket(fileno=int(sys.argv[3]))
    service = Service(link)
    code = 1
    try:
        service.run()
        service.close()
        code = 0
    except BaseException as error:
        _tell(link, error)
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the interpreter's own end takes long with PyTorch in it, and the learner has been told why


def _tell(link: socket.socket, error: BaseException) -> None:
    if isinstance(error, EtudeError):
        kind = "user" if isinstance(error, UserError) else "etude"
        if isinstance(error, EnvironmentFailureError):
            kind = "environment"
        told = {"raised": str(error), "kind": kind, "details": getattr(error, "details", "")}
    else:
        found = failure(error, copy=None, doing="a sampler")
        told = {"raised": str(found), "kind": "environment", "details": found.details or traceback.format_exc()}
    with suppress(OSError):
        send(link, told)
