"""MLServer's errors, whose text the client reads."""

from .. import InferenceError as OurError


class MLServerError(OurError):
    """An error with a status for the client, which is 400 unless another is given."""

    def __init__(self, msg: str, status_code: int = 400) -> None:
        super().__init__(msg, status=status_code)


class InferenceError(MLServerError):
    """The request cannot be answered."""


class CodecError(MLServerError):
    """A codec cannot read or write a value."""
