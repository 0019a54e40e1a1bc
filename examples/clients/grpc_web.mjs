// Asks the application of examples/grpc_mounted.py over gRPC-Web with fetch, which needs no HTTP/2: which digit is an image of zeros?
//     node examples/clients/grpc_web.mjs [http://127.0.0.1:8000] [token]
// It writes its one message by hand, to need nothing but Node; applications use @protobuf-ts, connect-es or grpc-web, and the .proto file.

const [url = "http://127.0.0.1:8000", token = "secret"] = process.argv.slice(2);
const bytes = (data) => (ArrayBuffer.isView(data) ? Buffer.from(data.buffer, data.byteOffset, data.byteLength) : Buffer.from(data));

function varint(number) {
  return number < 0x80 ? [number] : [(number & 0x7f) | 0x80, ...varint(number >>> 7)];
}

function field(number, ...values) {
  const value = Buffer.concat(values.map(bytes));
  return Buffer.concat([bytes([(number << 3) | 2, ...varint(value.length)]), value]);
}

function frame(message) {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

function* frames(body) {
  for (let start = 0; start < body.length; ) {
    const end = start + 5 + body.readUInt32BE(start + 1);
    yield [body[start], body.subarray(start + 5, end)];
    start = end;
  }
}

const input = field(5, field(1, "image"), field(2, "FP32"), field(3, [1, 64])); // a ModelInferRequest's InferInputTensor
const request = Buffer.concat([field(1, "digits"), input, field(7, new Float32Array(64))]); // and its raw_input_contents
const response = await fetch(`${url}/inference.GRPCInferenceService/ModelInfer`, {
  method: "POST",
  headers: { "content-type": "application/grpc-web+proto", authorization: `Bearer ${token}` },
  body: frame(request),
});
if (!response.ok) throw new Error(`HTTP ${response.status}`);
const [[flag, message], ...rest] = frames(Buffer.from(await response.arrayBuffer()));
const trailers = (flag === 0x80 ? message : rest.at(-1)[1]).toString();
if (!trailers.startsWith("grpc-status:0\r\n")) throw new Error(decodeURIComponent(trailers));
console.log(Number(message.readBigInt64LE(message.length - 8))); // the raw output contents are the last field
