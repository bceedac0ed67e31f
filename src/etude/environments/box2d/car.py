"""CarRacing's car as Gymnasium moves it, to the bit, with fewer questions to Box2D and without NumPy's scalars."""

from __future__ import annotations

import math
from typing import Any

from gymnasium.envs.box2d import car_dynamics as reference

_STIFFNESS = 205000 * reference.SIZE * reference.SIZE
_GRASS_GRIP = reference.FRICTION_LIMIT * 0.6
_BRAKING = 15
"""Radians per second that full brakes take from a wheel in one step."""
_LONGEST_TRACE = 30


class Car(reference.Car):
    """A car that Gymnasium has made, and `adopt` has taken over."""

    _moving: list[tuple[Any, Any, Any, Any]]

    @classmethod
    def adopt(cls, car: reference.Car) -> Car:
        """Take over a new car: same data, other methods."""
        car.__class__ = cls
        assert isinstance(car, cls)
        # Box2D's own memory, looked at through objects that stay good as long as the bodies live.
        car._moving = [(wheel, wheel.transform.q, wheel.linearVelocity, wheel.joint) for wheel in car.wheels]
        return car

    def gas(self, gas: Any) -> None:
        """Open the throttle by at most a tenth; it closes at once."""
        gas = min(max(float(gas), 0.0), 1.0)
        for wheel in self.wheels[2:4]:
            wheel.gas += min(gas - wheel.gas, 0.1)

    def brake(self, b: Any) -> None:
        """Brake all wheels; from 0.9 on they are blocked."""
        b = float(b)
        for wheel in self.wheels:
            wheel.brake = b

    def steer(self, s: Any) -> None:
        """Steer the front wheels towards an angle."""
        self.wheels[0].steer = self.wheels[1].steer = float(s)

    def step(self, dt: float) -> None:
        """Turn the wheels and push the car; the order of operations is Gymnasium's, on which the last bits depend."""
        for wheel, rotation, velocity, joint in self._moving:
            turn = wheel.steer - joint.angle
            speed = min(50.0 * abs(turn), 3.0)
            joint.motorSpeed = speed if turn > 0 else -speed if turn < 0 else turn * speed

            grip = _GRASS_GRIP
            for tile in wheel.tiles:
                grip = max(grip, reference.FRICTION_LIMIT * tile.road_friction)

            cos, sin, x, y = rotation.c, rotation.s, velocity.x, velocity.y
            forward, sideward = -sin * x + cos * y, cos * x + sin * y

            omega, gas, brake = wheel.omega, wheel.gas, wheel.brake
            work = dt * reference.ENGINE_POWER * gas
            omega += work / reference.WHEEL_MOMENT_OF_INERTIA / (abs(omega) + 5.0)
            self.fuel_spent += work
            if brake >= 0.9:
                omega = 0
            elif brake > 0:
                slower = min(_BRAKING * brake, abs(omega))
                omega += -slower if omega > 0 else slower if omega < 0 else 0.0
            wheel.phase += omega * dt

            along = (-forward + omega * wheel.wheel_rad) * _STIFFNESS
            across = -sideward * _STIFFNESS
            force = math.sqrt(along * along + across * across)
            self._leave_trace(wheel, slides=force > 2.0 * grip)
            if force > grip:
                along, across = along / force * grip, across / force * grip
            wheel.omega = omega - dt * along * wheel.wheel_rad / reference.WHEEL_MOMENT_OF_INERTIA
            wheel.ApplyForceToCenter((across * cos + along * -sin, across * sin + along * cos), True)

    def _leave_trace(self, wheel: Any, *, slides: bool) -> None:
        """Skid marks, which only pictures for people show."""
        if not slides:
            wheel.skid_start = wheel.skid_particle = None
            return
        grass, trace = not wheel.tiles, wheel.skid_particle
        if trace and trace.grass == grass and len(trace.poly) < _LONGEST_TRACE:
            trace.poly.append((wheel.position[0], wheel.position[1]))
        elif wheel.skid_start is None:
            wheel.skid_start = wheel.position
        else:
            wheel.skid_particle = self._create_particle(wheel.skid_start, wheel.position, grass)
            wheel.skid_start = None

    def destroy(self) -> None:
        """Take the bodies out of the world, and let go of their memory."""
        super().destroy()
        self._moving = []
