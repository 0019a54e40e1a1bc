// A request as code, for the shell, for Python, for a browser, and where it is shown. Knows nothing of the form.

import { at, breakable, chooseTab, listenToTabs, made, saveButton } from "./elements.js";
import { compact, literal, oneLine, onLines, parse, pretty } from "./json.js";
import { contentOf, linkOf } from "./request.js";

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
  const data = file || saved ? `@${file?.name ?? saved}` : onLines(body);
  const escaped = onLines(body).replace(/[\\$`]/g, "\\$&");  // in which files stand for their base64
  const withFiles = sources.reduce((text, { text: base64, name }) => text.replaceAll(base64, () => `$(base64 < ${quoted(name)} | tr -d '\\n')`), escaped);
  lines.push(sources.length ? `--data-binary @- <<EOF\n${withFiles}\nEOF` : `--data-binary ${quoted(data)}${file ? " --output answer" : ""}`);
  return lines.join(" \\\n  ");
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Lines of Python, with httpx2. */
function python(request) {
  const { url, headers, body, file, streams, parts, sources } = request, saved = file ? null : fileOf(request), isBytes = file || parts.length;
  const imports = { [FILES.json]: "import json\n\n", [FILES.bytes]: "" }[saved] ?? (sources.length ? "import base64\n\n" : "");
  const begin = `${saved ? `# save the body as ${saved}\n\n` : ""}${imports}import httpx2\n\n${sources.length ? READ : ""}`;
  const withReads = sources.reduce((text, source) => text.replaceAll(JSON.stringify(source.text), () => `read(${JSON.stringify(source.name)})`), literal(body));
  const json = saved ? `json.load(open("${saved}"))` : withReads, given = isBytes ? headersIn(request) : headers;
  const data = isBytes ? `content=open(${JSON.stringify(file?.name ?? saved)}, "rb").read()` : `json=${json}`;
  const more = Object.keys(given).length ? `    headers=${literal(JSON.stringify(given))},\n` : "";
  const asked = `    ${JSON.stringify(url)},\n    ${data},\n${more}`;
  if (!streams) return `${begin}response = httpx2.post(\n${asked})\nprint(response.${file ? "content" : "json()"})\n`;
  return `${begin}with httpx2.stream(\n    "POST",\n${asked}    timeout=None,\n) as response:\n` +
    "    for line in response.iter_lines():\n        print(line)\n";
}

const READ = 'def read(name):\n    return base64.b64encode(open(name, "rb").read()).decode()\n\n\n';

/** The members of an inference request of which Python can write the arrays; null where it is another request, too long, or one that no client would make, as a server refuses it. */
function inferenceIn({ body, file, action, parts }) {
  if (file || !action.startsWith("infer") || isLong(body)) return null;
  const { inputs, outputs, parameters, id } = parse(body);
  const isNamed = (tensor) => typeof tensor?.name === "string";
  const hasArray = (input) => (input.parameters ? Boolean(codeOf(input, parts)) : Array.isArray(input.data));
  const isWhole = (input) => isNamed(input) && Array.isArray(input.shape) && typeof input.datatype === "string" && /^\w+$/.test(input.datatype) && hasArray(input);
  const areAll = (tensors, test) => Array.isArray(tensors) && tensors.every(test);
  return areAll(inputs, isWhole) && areAll(outputs ?? [], isNamed) ? { inputs, outputs, parameters, id } : null;
}

/** Lines of Python, with this package's client. */
function ours(request) {
  const { url, headers, streams, name, version, parts } = request, { inputs, outputs, parameters, id } = inferenceIn(request) ?? {};
  if (!inputs || inputs.some(({ datatype }) => datatype === "BF16") || outputs?.some((output) => output.parameters)) return null;
  const made = inputs.map((input) => `        ${JSON.stringify(input.name)}: ${arrayOf(input, parts)},\n`);
  const options = { version, id, parameters, outputs: outputs?.map((output) => output.name) };
  const given = Object.entries(options).filter(([, value]) => value !== undefined && value !== null);
  const more = given.map(([option, value]) => `, ${option}=${literal(oneLine(value))}`).join("");
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
  const dtype = `"${DTYPES[datatype] ?? datatype.toLowerCase()}"`;
  const array = data ? `np.array(${literal(pretty(data))}, dtype=${dtype})` : `${codeOf({ name }, parts)}.astype(${dtype})`;
  return `${array}.reshape(${pretty(shape)})`;
}

const argumentsOf = ({ name, version, headers }) =>
  `${JSON.stringify(name)}, inputs${version === undefined ? "" : `, model_version=${JSON.stringify(version)}`}${headersOf(headers)}`;

const headersOf = (headers) => Object.keys(headers).length ? `, headers=${literal(JSON.stringify(headers))}` : "";

/** Lines of JavaScript, for a browser, Node and others. */
function browser({ url, headers, body, file, streams, parts, sources }) {
  if (file || isLong(body) || parts.length || sources.length) return null;
  const isExact = !/\d{16}/.test(body);  // longer integers are more than a number of JavaScript can hold
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

/** What declares the tensors that were sent and answered, for `register`, as far as the metadata has none of their names. */
export function declaration(sent, answered, { inputs, outputs }) {
  const isDeclared = ([, tensors, declared]) => tensors.every(({ name }) => declared.some((each) => each.name === name));
  const parts = [["inputs", sent, inputs], ["outputs", answered, outputs]].filter((part) => !isDeclared(part));
  const itemsOf = (items) => items.length > 1 ? `\n${items.map((item) => `    ${item},\n`).join("")}` : items.join("");  // each of several on a line
  return parts.map(([what, tensors]) => `${what}=[${itemsOf(tensors.map(specOf))}]`).join(",\n");
}

/** The first dimension is mostly the number of rows, which may be any. */
function specOf({ name, datatype, shape, parameters }) {
  const type = parameters?.content_type;
  const more = type && type !== "np" ? `, content_type=${JSON.stringify(type)}` : "";
  return `TensorSpec(${JSON.stringify(name)}, "${datatype}", ${pretty(shape.map((size, place) => (place ? size : -1)))}${more})`;
}

// The code that is shown

const EARLIER = "Nothing to copy while there is a mistake above. Below is the last request without one.";
const SHORT = '{"inputs": []}';  // a body for which each language has code, if it has the action

let shown = null;  // the request, its codes by language, and whether the form has a mistake since

export function listenToCode() {
  listenToTabs(at("languages"), ({ textContent }) => showSnippet(textContent));
}

/** Offer the languages in which a request can be written, and its link; one before a mistake is not to be copied. */
export function showCode(request, isEarlier) {
  const codes = new Map(Object.entries(LANGUAGES).map(([name, { make }]) => [name, make(request)]).filter(([, code]) => code));
  const hasLink = !request.file && !request.parts.length && Boolean(linkOf(request));
  shown = { request, isEarlier, codes, hasLink };
  at("link").hidden = !hasLink;
  for (const each of [at("link"), document.querySelector("[data-copies=code] button")]) each.disabled = isEarlier;
  at("code").classList.toggle("earlier", isEarlier);
  const tabs = [...at("languages").children];
  for (const tab of tabs) tab.hidden = !codes.has(tab.textContent);
  const offered = tabs.filter(({ hidden }) => !hidden);
  chooseTab(offered.find((tab) => tab.ariaSelected === "true") ?? offered[0]);
}

/** What the request is not offered as: a link, or code in languages that have some for another request. */
function limitOf({ request, codes, hasLink }) {
  const enumerate = (words) => new Intl.ListFormat("en-GB").format(words);
  const { body, file, parts } = request, another = { ...request, body: SHORT, file: undefined, parts: [], sources: [] };
  const languages = Object.entries(LANGUAGES).filter(([name, { make }]) => !codes.has(name) && make(another)).map(([name]) => name);
  const others = languages.length ? `There is no code for ${enumerate(languages)}.` : "";
  if (file || parts.length) return `A link cannot carry its bytes. ${others}`;
  const tooLong = [...(hasLink ? [] : ["a link"]), ...(isLong(body) ? languages : [])];
  return tooLong.length ? `The request is too long for ${enumerate(tooLong)}. ${isLong(body) ? "" : others}` : others;
}

function showSnippet(name) {
  const { request, isEarlier, codes } = shown, code = codes.get(name), file = fileOf(request), isNamed = Boolean(file) && !isEarlier && code.includes(file);
  at("snippet").setAttribute("aria-labelledby", `in-${name}`);
  at("save-body").replaceChildren(...(isNamed ? [saveButton(file, () => new Blob([contentOf(request)[0]]), `Save ${file}`)] : []));
  at("note").textContent = isEarlier ? EARLIER : [LANGUAGES[name].note, limitOf(shown)].filter(Boolean).join(" ");
  const [begin, ...others] = code.split(request.url);
  at("code").replaceChildren(...withEnds(begin), ...others.flatMap((part) => [...breakable(request.url, /(?<=[/])(?=[^/])/), ...withEnds(part)]));
}

/** Lines of code, in which a backslash at the end of one stands beside the word before it. */
const withEnds = (code) => code.split(/( \\)(?=\n)/).map((part, place) => (place % 2 ? made("span", part, "end") : part));
