// A request as code: for the shell, for Python, for a browser. Knows nothing of the page.

import { compact, isJSON, literal, parse, pretty } from "./json.js";

const LONG = 20000;  // characters of a body from which it is not repeated in a line for the shell

const SAVE = "# save the body as body.json";

/** By name: makes the code of a request, or null where the request cannot be sent that way; and what to know about it. */
export const LANGUAGES = {
  curl: { make: curl },
  oip_asgi: { make: ours, note: "It needs oip_asgi[client], and asks any server of the protocol." },
  httpx2: { make: python },
  tritonclient: { make: triton, note: "It needs tritonclient[http], and asks below /v2 only." },
  fetch: { make: browser },
  gRPC: { make: grpc, note: "It needs tritonclient[grpc], and a server that answers gRPC: install(..., grpc=True), or add_to_server." },
};

/** A line for a POSIX shell. */
function curl({ url, headers, body, file, streams }) {
  if (file) {
    const all = Object.entries({ "Inference-Header-Content-Length": "0", ...headers }).map((header) => `-H ${quoted(header.join(": "))}`);
    return [`curl -sS ${quoted(url)}`, ...all, `--data-binary ${quoted(`@${file.name}`)} --output answer`].join(" \\\n  ");
  }
  const described = { "Content-Type": "application/json", ...headers };
  const saved = body.length > LONG ? `${SAVE}\n` : "";
  const parts = [`${saved}curl ${streams ? "-sSN" : "-sS"} ${quoted(url)}`];
  for (const [name, value] of Object.entries(described)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  const data = body.length > LONG ? "@body.json" : compact(body).replace(/^@/, " @");  // curl takes what is behind an @ for a file
  parts.push(`--data-binary ${quoted(data)}`);
  return parts.join(" \\\n  ");
}

function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Lines of Python, with httpx2. */
function python({ url, headers, body, file, streams }) {
  if (file) {
    const all = literal(JSON.stringify({ "Inference-Header-Content-Length": "0", ...headers }));
    const content = `open(${JSON.stringify(file.name)}, "rb").read()`;
    const asked = `    ${JSON.stringify(url)},\n    content=${content},\n    headers=${all},\n`;
    return `import httpx2\n\nresponse = httpx2.post(\n${asked})\nprint(response.content)\n`;
  }
  const data = body.length > LONG ? 'json.load(open("body.json"))' : literal(body);
  const imports = body.length > LONG ? `${SAVE}\nimport json\n\nimport httpx2\n\n` : "import httpx2\n\n";
  const more = Object.keys(headers).length ? `    headers=${literal(JSON.stringify(headers))},\n` : "";
  const asked = `    ${JSON.stringify(url)},\n    json=${data},\n${more}`;
  if (!streams) return `${imports}response = httpx2.post(\n${asked})\nprint(response.json())\n`;
  return `${imports}with httpx2.stream(\n    "POST",\n${asked}    timeout=None,\n) as response:\n` +
    "    for line in response.iter_lines():\n        print(line)\n";
}

/** Lines of Python, with this package's client. */
function ours({ url, headers, body, file, streams, action, name, version }) {
  if (file || !action.startsWith("infer") || body.length > LONG || !isJSON(body)) return null;
  const { inputs, outputs, parameters, id } = parse(body);
  const isKnown = ({ datatype, data, parameters }) => datatype !== "BF16" && !parameters && Array.isArray(data);
  if (!Array.isArray(inputs) || !inputs.every(isKnown) || outputs?.some(({ parameters }) => parameters)) return null;
  const made = inputs.map((input) => `        ${JSON.stringify(input.name)}: ${arrayOf(input)},\n`);
  const options = { version, id, parameters, outputs: outputs?.map((output) => output.name) };
  const given = Object.entries(options).filter(([, value]) => value !== undefined && value !== null);
  const more = given.map(([option, value]) => `, ${option}=${literal(compact(pretty(value)))}`).join("");
  const asked = `${JSON.stringify(name)}, inputs${more})`;
  return "import numpy as np\nfrom oip_asgi.client import Client\n\n" +
    `with Client(${JSON.stringify(url.split("/models/")[0])}${headersOf(headers)}) as client:\n    inputs = {\n${made.join("")}    }\n` +
    (streams ? `    for response in client.stream(${asked}:\n` : `    response = client.infer(${asked}\n`) +
    `${streams ? "        " : "    "}for output in response.outputs:\n${streams ? "            " : "        "}print(output.name, output.array)\n`;
}

/** Lines of Python, with Triton's client for HTTP. */
function triton(request) {
  const { protocol, host, pathname } = new URL(request.url);
  const [mount] = pathname.split("/models/");
  const inputs = inputsOf(request.body);
  if (request.file || request.action !== "infer" || !mount.endsWith("/v2") || !inputs) return null;
  const address = JSON.stringify(host + mount.slice(0, -"/v2".length));
  return "import numpy as np\nimport tritonclient.http as triton\n\n" +
    `client = triton.InferenceServerClient(${address}${protocol === "https:" ? ", ssl=True" : ""})\n${inputs}` +
    `response = client.infer(${argumentsOf(request)})\n` +
    'for output in response.get_response()["outputs"]:\n    print(output["name"], response.as_numpy(output["name"]))\n';
}

/** Lines of Python, with Triton's client for gRPC. */
function grpc(request) {
  const inputs = inputsOf(request.body);
  if (request.file || !request.action.startsWith("infer") || !inputs) return null;
  const client = "import numpy as np\nimport tritonclient.grpc as triton\n\n" +
    `client = triton.InferenceServerClient(${JSON.stringify(new URL(request.url).host)})  # or the port where gRPC is served\n${inputs}`;
  if (!request.streams) {
    return `${client}response = client.infer(${argumentsOf(request)})\n` +
      "for output in response.get_response().outputs:\n    print(output.name, response.as_numpy(output.name))\n";
  }
  const { headers, ...others } = request;
  return `import queue\n\n${client}answers = queue.Queue()
client.start_stream(lambda result, error: answers.put(error or result)${headersOf(headers)})
client.async_stream_infer(${argumentsOf({ ...others, headers: {} })}, enable_empty_final_response=True)
while True:
    answer = answers.get(timeout=60)
    if isinstance(answer, Exception):
        raise answer
    if answer.get_response().parameters["triton_final_response"].bool_param:
        break
    for output in answer.get_response().outputs:
        print(output.name, answer.as_numpy(output.name))
client.stop_stream()
`;
}

const DTYPES = { BOOL: "bool", FP16: "float16", BF16: "float32", FP32: "float32", FP64: "float64", BYTES: "object" };

/** Lines of Python that make the inputs of a request for Triton's clients, which know no parameters of inputs; null where they cannot. */
function inputsOf(body) {
  if (body.length > LONG || !isJSON(body)) return null;
  const { inputs } = parse(body);
  if (!Array.isArray(inputs) || inputs.some(({ data, parameters }) => parameters || !Array.isArray(data))) return null;
  const made = inputs.map(({ name, shape, datatype }) =>
    `    triton.InferInput(${JSON.stringify(name)}, ${pretty(shape)}, "${datatype}"),\n`);
  const filled = inputs.map((input, place) => `inputs[${place}].set_data_from_numpy(${arrayOf(input)})\n`);
  return `inputs = [\n${made.join("")}]\n${filled.join("")}`;
}

function arrayOf({ shape, datatype, data }) {
  return `np.array(${literal(pretty(data))}, dtype="${DTYPES[datatype] ?? datatype?.toLowerCase()}").reshape(${pretty(shape)})`;
}

function argumentsOf({ name, version, headers }) {
  return `${JSON.stringify(name)}, inputs${version === undefined ? "" : `, model_version=${JSON.stringify(version)}`}${headersOf(headers)}`;
}

function headersOf(headers) {
  return Object.keys(headers).length ? `, headers=${literal(JSON.stringify(headers))}` : "";
}

/** Lines of JavaScript, for a browser, Node and others. */
function browser({ url, headers, body, file, streams }) {
  if (file || body.length > LONG) return null;
  const isExact = isJSON(body) && !/\d{16}/.test(body);  // longer integers are more than a number of JavaScript can hold
  const data = isExact ? `JSON.stringify(${body.replaceAll("\n", "\n  ")})` : JSON.stringify(compact(body));
  const ask = `const response = await fetch(${JSON.stringify(url)}, {
  method: "POST",
  headers: ${JSON.stringify({ "Content-Type": "application/json", ...headers })},
  body: ${data},
});
`;
  if (!streams) return `${ask}console.log(await response.json());\n`;
  return `${ask}for await (const events of response.body.pipeThrough(new TextDecoderStream())) console.log(events);\n`;
}

/** What declares the tensors that were sent and answered, for `register`, as far as they are not `declared`. */
export function declaration(sent, answered, declared) {
  const isDeclared = ([what, tensors]) => tensors.every(({ name }) => declared[what].includes(name));
  const parts = [["inputs", sent], ["outputs", answered]].filter((part) => !isDeclared(part));
  return parts.map(([what, tensors]) => `${what}=[${tensors.map(specOf).join(", ")}]`).join(", ");
}

/** The first dimension is mostly the number of rows, which may be any. */
function specOf({ name, datatype, shape, parameters }) {
  const type = parameters?.content_type;
  const more = type && type !== "np" ? `, content_type=${JSON.stringify(type)}` : "";
  return `TensorSpec(${JSON.stringify(name)}, "${datatype}", ${pretty(shape.map((size, place) => (place ? size : -1)))}${more})`;
}
