"""Where a model's files are."""

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from .errors import MLServerError
from .settings import ModelSettings


async def get_model_uri(settings: ModelSettings, wellknown_filenames: Sequence[str] = ()) -> str:
    """The path that `parameters.uri` names, relative to `model-settings.json`; a URI with another scheme than
    `file` as it is.

    Args:
        settings: The model's settings.
        wellknown_filenames: Names to look for if it names a folder.

    Raises:
        MLServerError: There is no such file or folder.
    """
    uri = settings.parameters.uri or ""
    if urlsplit(uri).scheme not in ("", "file"):
        return str(uri)
    # RFC 8089; # and ? are parts of a name here
    path = Path(settings._source).parent / re.sub(
        "^file:(//(localhost(?=/))?)?", "", uri, flags=re.IGNORECASE
    )
    if not uri or not path.exists():
        raise MLServerError(f"{settings.name}: parameters.uri: there is no file or folder {path}", 422)
    return str(next((path / name for name in wellknown_filenames if (path / name).is_file()), path))
