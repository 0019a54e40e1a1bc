// Asks a server for the species of two flowers with fetch: JSON first, then binary tensors.
//     node examples/clients/fetch.mjs [http://127.0.0.1:8000] [user:password]

const [url = "http://127.0.0.1:8000", user = "ada:lovelace"] = process.argv.slice(2);
const authorization = `Basic ${btoa(user)}`;
const flowers = [5.1, 3.5, 1.4, 0.2, 6.3, 3.3, 6.0, 2.5];

async function infer(body, headers = {}) {
  const response = await fetch(`${url}/v2/models/iris/infer`, { method: "POST", body, headers: { authorization, ...headers } });
  if (!response.ok) throw new Error((await response.json()).error);
  return response;
}

const json = { inputs: [{ name: "x", datatype: "FP64", shape: [2, 4], data: flowers }] };
const answer = await (await infer(JSON.stringify(json))).json();
console.log(...answer.outputs[0].data);

const parameters = { binary_data_size: 64 };
const head = new TextEncoder().encode(JSON.stringify({ inputs: [{ name: "x", datatype: "FP64", shape: [2, 4], parameters }] }));
const binary = await infer(new Blob([head, new Float64Array(flowers)]), { "inference-header-content-length": `${head.length}` });
console.log(...(await binary.json()).outputs[0].data);
