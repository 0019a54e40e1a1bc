// Prints a text while a server writes it, with fetch: server-sent events, one JSON object each. Leaving the loop stops the model.
//     node examples/clients/stream.mjs [http://127.0.0.1:8000] [text]

const [url = "http://127.0.0.1:8000", text = "The value of"] = process.argv.slice(2);

async function* events(path, request) {
  const response = await fetch(url + path, { method: "POST", body: JSON.stringify(request) });
  if (!response.ok) throw new Error((await response.json()).error);
  let rest = "";
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const parts = (rest + chunk).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part.startsWith(":")) continue; // a comment, which keeps the connection open
      const event = JSON.parse(part.slice("data: ".length));
      if (event.error) throw new Error(event.error); // the status was sent before
      yield event;
    }
  }
}

process.stdout.write(text);
for await (const event of events("/v2/models/writer/generate_stream", { text_input: text, max_words: 20 })) {
  process.stdout.write(event.text_output);
}
process.stdout.write("\n");
