"""Names that models import from MLServer's `codecs.utils`."""

from typing import TypeAlias

from ..types import RequestInput, ResponseOutput

InputOrOutput: TypeAlias = RequestInput | ResponseOutput
