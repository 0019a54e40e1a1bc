"""gRPC without a transport: its messages, frames and exchanges."""

from oip_asgi._grpc import methods as grpc_exchange
from oip_asgi._grpc.messages import TYPED, GRPCFormat, Method, Reply
from oip_asgi._grpc.methods import reply_error
from oip_asgi._grpc.over_http import FrameReader
from oip_asgi._grpc.stream_call import StreamCall
from oip_asgi._grpc.wire import encode_bytes_head, split_field
