"""A robot dog walks on command. Its task is data; a reward of your own is a function in this file, and a word."""

import sys

import etude
from etude.robots.trial import SCRIPTS
from etude.using.stored_policy import open_policy
from etude.using.trials import run_trials


def calm(state):
    """Return how far the joints are from rest, (N,): the mean square of their velocities."""
    return state.joint_velocity.square().mean(-1)


if __name__ == "__main__":
    task = "environment.robot.rewards={robot.calm: {weight: -0.001}}"  # this file's name, and the function's
    run = etude.train("quadruped-flat:ppo", task, *sys.argv[1:])
    print(run.evaluate(16).metrics())

    # What `etude trials` does: scripted commands, and how well each is followed.
    for result in run_trials(open_policy(run), SCRIPTS[:2], robots=4, seconds=4):
        print(result)
