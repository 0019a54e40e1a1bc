#!/bin/sh
# Asks a server for the species of two flowers, in JSON.
#     sh examples/clients/curl.sh [http://127.0.0.1:8000] [user:password]
set -eu
url=${1:-http://127.0.0.1:8000}
user=${2:-ada:lovelace}
curl --silent --show-error --fail --output /dev/null "$url/v2/health/ready"
curl --silent --show-error --fail-with-body --user "$user" "$url/v2/models/iris/infer" --data '
{"inputs": [{"name": "x", "datatype": "FP64", "shape": [2, 4], "data": [[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]]}]}'
