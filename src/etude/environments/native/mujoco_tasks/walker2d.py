"""Walker2d-v5: walk forward; ends with a fall."""

from __future__ import annotations

from etude.environments.native.mujoco_tasks.runners import WalkerParameters, WalkerVector


class Walker2d(WalkerVector[WalkerParameters]):
    """Two legs in a plane, paid for speed and for standing."""

    id = "Walker2d-v5"
    xml = "walker2d_v5.xml"
    parameters_type = WalkerParameters
