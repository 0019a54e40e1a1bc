"""gRPC: messages, methods and framing, which know neither protobuf nor a server; and above them protobuf's
classes, the services, streams, and the application over ASGI."""
