"""The gRPC wire format of requests and responses, and the table of methods. Knows no gRPC library and no protobuf."""
