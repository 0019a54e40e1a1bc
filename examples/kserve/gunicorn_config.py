"""REST over HTTP/1.1 and HTTP/2, and gRPC, on one port: inference_service_grpc.yaml starts gunicorn with this file."""

bind = "0.0.0.0:8080"
worker_class = "asgi"
http_protocols = "h2,h1"
# without TLS, which ends before the container
http2_cleartext = "both"
# whose HTTP/2 is taken: the proxy of the pod, and nobody else reaches its port
forwarded_allow_ips = "*"
# seconds that a connection may say nothing: a gRPC client keeps one for all of its calls
keepalive = 75
# seconds that requests have to finish after SIGTERM: below terminationGracePeriodSeconds, which is 30
graceful_timeout = 20
# the file system is read-only, but for memory
worker_tmp_dir = "/dev/shm"
control_socket_disable = True
