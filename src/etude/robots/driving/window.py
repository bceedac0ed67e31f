"""A window that shows a robot and takes keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from etude.errors import EtudeError
from etude.robots.driving.driving import HELP, KEYS, Event, EventSource, Press
from etude.robots.driving.live_events import import_pygame


class RobotWindow(EventSource):
    """Pictures as they come, a line of text over them, and the keys that are pressed meanwhile. Closing it means to stop."""

    def __init__(self, title: str) -> None:
        self._pygame = pygame = import_pygame()
        self._title = title
        try:
            pygame.display.init()
        except pygame.error as error:
            raise EtudeError(f"no window can be opened ({error}); --video FILE.mp4 records instead") from error
        pygame.font.init()
        self._font = pygame.font.Font(None, 24)
        self._screen = None

    def show(self, picture: np.ndarray, text: str) -> None:
        """Put a picture (H, W, 3) on the screen."""
        pygame = self._pygame
        size = (picture.shape[1], picture.shape[0])
        if self._screen is None or self._screen.get_size() != size:
            self._screen = pygame.display.set_mode(size)
            pygame.display.set_caption(f"{self._title} — {HELP}")
        self._screen.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        self._screen.blit(self._font.render(text, True, (20, 20, 20)), (10, 10))
        pygame.display.flip()

    def poll(self, second: float) -> Sequence[Event]:
        """Return the keys that were pressed."""
        pygame, pressed = self._pygame, []
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                pressed.append("x")
            elif event.type == pygame.KEYDOWN:
                name = pygame.key.name(event.key)
                pressed.append({"escape": "esc"}.get(name, name))
        return [Press(key) for key in pressed if key in KEYS]

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()
