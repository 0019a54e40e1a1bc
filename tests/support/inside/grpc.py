"""gRPC without a transport: its messages, frames and exchanges."""

from oip_asgi._grpc import exchange as grpc_exchange
from oip_asgi._grpc import infer as grpc_infer
from oip_asgi._grpc import messages as grpc_messages
from oip_asgi._grpc.frames import FrameReader
from oip_asgi._grpc.messages import TYPED, Method, Reply
from oip_asgi._grpc.stream import MOST_UNANSWERED, stream_exchange
from oip_asgi._grpc.wire import encode_bytes_head, split
