"""A publication as a repository of Hugging Face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etude.errors import EtudeError, UserError
from etude.files.printable import one_line
from etude.training.hub_models import endpoint, hub_package


def check_login() -> None:
    """Raise UserError where the package or a token is missing, before anything takes time."""
    if hub_package("--repo").get_token() is None:
        raise UserError("--repo needs a token: `hf auth login`, or HF_TOKEN in the environment")


def upload(folder: Path, repository: str, *, private: bool) -> str:
    """Make the repository hold what the folder holds; returns its address."""
    hub = hub_package("--repo")
    api: Any = hub.HfApi(endpoint=endpoint())
    try:
        made = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=made.repo_id,
            folder_path=folder,
            commit_message="Publish a policy",
            delete_patterns=["checkpoints/**", "onnx/**", "*.mp4"],  # of an earlier publication
        )
    except (OSError, ValueError, RuntimeError) as error:  # what the package raises is one of these
        said = one_line(str(error)) or type(error).__name__
        raise EtudeError(f"--repo {repository}: can't be published: {said}; what was made is in {folder}") from error
    return str(made)
