"""gRPC without a server and without protobuf: `methods` has the table of methods, `headers` knows `grpc-timeout` and `grpc-status`,
`messages` decides that typed contents are too large. `_protocol/grpc_codes` says which gRPC code each HTTP status has."""
