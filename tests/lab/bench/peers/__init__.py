"""Other servers, with the benchmarks' models. Each module is run by the Python that has the server installed.

They import nothing of this package, nor of each other, and take two ports: for REST and for gRPC. They also serve the models of
`tests.lab.bench.functions`, where their environment has scikit-learn, pandas and onnxruntime. The servers run in
their own process where they can, and without access logs, as ours does.
"""
