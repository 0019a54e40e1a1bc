"""The logger that models import from MLServer."""

from logging import getLogger
from typing import Final

logger: Final = getLogger("mlserver")
