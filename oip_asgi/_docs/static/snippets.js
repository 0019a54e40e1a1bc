// A request as code: for the shell, for Python, for a browser. Knows nothing of the page.

import { compact, isJSON, literal, onLines, parse, pretty } from "./json.js";
import { contentOf } from "./request.js";

const LONG = 20000;  // characters of a body, from which it is not repeated in code

const FILES = { json: "body.json", bytes: "body.bin" };

/** By name: makes the code of a request, or null where the request cannot be sent that way; and what to know about it. */
export const LANGUAGES = {
  curl: { make: curl },
  oip_asgi: { make: ours, note: "It needs oip_asgi[client], and works with any server of the protocol." },
  httpx2: { make: python },
  tritonclient: { make: triton, note: "It needs tritonclient[http], and works only where the paths begin with /v2." },
  fetch: { make: browser },
  gRPC: { make: grpc, note: "It needs tritonclient[grpc], and a server that answers gRPC: install(..., grpc=True), or add_to_server." },
};

/** Whether a body is too long to be repeated in code. */
export const isLong = (body) => body.length > LONG;

/** The file in which the body has to be saved for the code; null if the code has the body itself. */
export function fileOf({ body, parts, sources }) {
  if (parts.length) return FILES.bytes;
  return !sources.length && isLong(body) ? FILES.json : null;
}

/** The headers of a request as it is sent. */
const headersIn = (request) => ({ ...contentOf(request)[1], ...request.headers });

/** A command for a POSIX shell, which takes new lines between quotes. */
function curl(request) {
  const { url, body, file, streams, sources } = request, saved = file ? null : fileOf(request);
  const lines = [`${saved ? `# save the body as ${saved}\n` : ""}curl ${streams ? "-sSN" : "-sS"} ${quoted(url)}`];
  for (const header of Object.entries(headersIn(request))) lines.push(`-H ${quoted(header.join(": "))}`);
  const data = file || saved ? `@${file?.name ?? saved}` : onLines(body).replace(/^@/, " @");  // curl takes what is behind an @ for a file
  lines.push(sources.length ? `--data-binary @- <<EOF\n${withFiles(body, sources)}\nEOF` : `--data-binary ${quoted(data)}${file ? " --output answer" : ""}`);
  return lines.join(" \\\n  ");
}

/** A body for the shell, in which files stand for their base64. */
function withFiles(body, sources) {
  const escaped = onLines(body).replace(/[\\$`]/g, "\\$&");
  const read = ({ name }) => `$(base64 < ${quoted(name)} | tr -d '\\n')`;
  return sources.reduce((text, source) => text.replaceAll(source.text, () => read(source)), escaped);
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Lines of Python, with httpx2. */
function python(request) {
  const { url, headers, body, file, streams, parts, sources } = request, saved = file ? null : fileOf(request), isBytes = file || parts.length;
  const imports = { [FILES.json]: "import json\n\n", [FILES.bytes]: "" }[saved] ?? (sources.length ? "import base64\n\n" : "");
  const begin = `${saved ? `# save the body as ${saved}\n\n` : ""}${imports}import httpx2\n\n${sources.length ? READ : ""}`;
  const json = saved ? `json.load(open("${saved}"))` : withReads(literal(body), sources), given = isBytes ? headersIn(request) : headers;
  const data = isBytes ? `content=open(${JSON.stringify(file?.name ?? saved)}, "rb").read()` : `json=${json}`;
  const more = Object.keys(given).length ? `    headers=${literal(JSON.stringify(given))},\n` : "";
  const asked = `    ${JSON.stringify(url)},\n    ${data},\n${more}`;
  if (!streams) return `${begin}response = httpx2.post(\n${asked})\nprint(response.${file ? "content" : "json()"})\n`;
  return `${begin}with httpx2.stream(\n    "POST",\n${asked}    timeout=None,\n) as response:\n` +
    "    for line in response.iter_lines():\n        print(line)\n";
}

const READ = 'def read(name):\n    return base64.b64encode(open(name, "rb").read()).decode()\n\n\n';

const withReads = (code, sources) =>
  sources.reduce((text, source) => text.replaceAll(JSON.stringify(source.text), () => `read(${JSON.stringify(source.name)})`), code);

/**
 * The members of an inference request of which Python can write the arrays: inputs that have data and no parameters, or are parts, made by code. Null
 * where it is another request, too long, or what a server would refuse: it can be sent as it is written, but no client would make it.
 */
function inferenceIn({ body, file, action, parts }) {
  if (file || !action.startsWith("infer") || isLong(body) || !isJSON(body)) return null;
  const { inputs, outputs, parameters, id } = parse(body) ?? {};
  const isNamed = (tensor) => typeof tensor?.name === "string";
  const isWhole = (input) => isNamed(input) && Array.isArray(input.shape) && typeof input.datatype === "string" && /^\w+$/.test(input.datatype);
  const hasArray = (input) => (input.parameters ? Boolean(codeOf(input, parts)) : Array.isArray(input.data));
  if (!Array.isArray(inputs) || !inputs.every((input) => isWhole(input) && hasArray(input))) return null;
  const others = outputs ?? [];
  return Array.isArray(others) && others.every(isNamed) ? { inputs, outputs, parameters, id } : null;
}

/** Lines of Python, with this package's client. */
function ours(request) {
  const { url, headers, streams, name, version, parts } = request, { inputs, outputs, parameters, id } = inferenceIn(request) ?? {};
  if (!inputs || inputs.some(({ datatype }) => datatype === "BF16") || outputs?.some((output) => output.parameters)) return null;
  const made = inputs.map((input) => `        ${JSON.stringify(input.name)}: ${arrayOf(input, parts)},\n`);
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
  const inputs = inputsOf(request);
  if (request.action !== "infer" || !mount.endsWith("/v2") || !inputs) return null;
  const address = JSON.stringify(host + mount.slice(0, -"/v2".length));
  return "import numpy as np\nimport tritonclient.http as triton\n\n" +
    `client = triton.InferenceServerClient(${address}${protocol === "https:" ? ", ssl=True" : ""})\n${inputs}` +
    `response = client.infer(${argumentsOf(request)})\n` +
    'for output in response.get_response()["outputs"]:\n    print(output["name"], response.as_numpy(output["name"]))\n';
}

/** Lines of Python, with Triton's client for gRPC. */
function grpc(request) {
  const inputs = inputsOf(request);
  if (!inputs) return null;
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
function inputsOf(request) {
  const inputs = inferenceIn(request)?.inputs;
  if (!inputs) return null;
  const made = inputs.map(({ name, shape, datatype }) =>
    `    triton.InferInput(${JSON.stringify(name)}, ${pretty(shape)}, "${datatype}"),\n`);
  const filled = inputs.map((input, place) => `inputs[${place}].set_data_from_numpy(${arrayOf(input, request.parts)})\n`);
  return `inputs = [\n${made.join("")}]\n${filled.join("")}`;
}

/** The code that makes the array of an input, if it is one of the parts. */
const codeOf = ({ name }, parts) => parts.find((part) => part.name === name)?.code;

function arrayOf({ name, shape, datatype, data }, parts) {
  const code = data ? null : codeOf({ name }, parts);
  if (code) return `${code}.astype("${DTYPES[datatype] ?? datatype.toLowerCase()}").reshape(${pretty(shape)})`;
  return `np.array(${literal(pretty(data))}, dtype="${DTYPES[datatype] ?? datatype.toLowerCase()}").reshape(${pretty(shape)})`;
}

const argumentsOf = ({ name, version, headers }) =>
  `${JSON.stringify(name)}, inputs${version === undefined ? "" : `, model_version=${JSON.stringify(version)}`}${headersOf(headers)}`;

const headersOf = (headers) => Object.keys(headers).length ? `, headers=${literal(JSON.stringify(headers))}` : "";

/** Lines of JavaScript, for a browser, Node and others. */
function browser({ url, headers, body, file, streams, parts, sources }) {
  if (file || isLong(body) || parts.length || sources.length) return null;
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
  return parts.map(([what, tensors]) => `${what}=[${writeItems(tensors.map(specOf))}]`).join(",\n");
}

/** Items of a list of Python: each of several is on a line of its own. */
const writeItems = (items) => items.length > 1 ? `\n${items.map((item) => `    ${item},\n`).join("")}` : items.join("");

/** The first dimension is mostly the number of rows, which may be any. */
function specOf({ name, datatype, shape, parameters }) {
  const type = parameters?.content_type;
  const more = type && type !== "np" ? `, content_type=${JSON.stringify(type)}` : "";
  return `TensorSpec(${JSON.stringify(name)}, "${datatype}", ${pretty(shape.map((size, place) => (place ? size : -1)))}${more})`;
}
