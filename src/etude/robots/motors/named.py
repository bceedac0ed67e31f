"""Which networks a robot's motors name, and where their files are."""

from __future__ import annotations

from pathlib import Path

from etude.config.robots import RobotConfig
from etude.errors import UserError
from etude.robots.models.description import RobotDescription
from etude.robots.motors.network import MotorNetwork, bare, load_network


def paths_of_networks(config: RobotConfig, description: RobotDescription) -> dict[str, tuple[Path, str]]:
    """Return {as it is named: (where its files are, the key that names it)}: the run's copies where it has some."""
    folder = Path() if config.actuators else description.folder
    section = "environment.robot.actuators" if config.actuators else f"{description.file}: actuators"
    groups = config.actuators or description.actuators
    return {
        group.network: (
            Path(config.networks.get(group.network, folder / Path(group.network).expanduser())),
            f"{section}.{name}.network",
        )
        for name, group in groups.items()
        if group.network
    }


def networks_of(config: RobotConfig, description: RobotDescription) -> dict[str, MotorNetwork]:
    """Read the networks that a robot's motors name; their history must be a whole number of physics steps."""
    networks = {}
    for named, (path, where) in paths_of_networks(config, description).items():
        network = load_network(path, where)
        network.name = bare(Path(named)).name  # a run's copy has another
        steps = network.layout.step / config.timestep
        if steps < 0.99 or abs(steps - round(steps)) > 0.01:
            raise UserError(
                f"{where}={named}: was learnt from samples every {network.layout.step * 1000:g} ms, which is no multiple of "
                f"environment.robot.timestep, {config.timestep * 1000:g} ms: change that, or fit it with --step"
            )
        networks[named] = network
    return networks
