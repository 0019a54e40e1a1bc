"""A transformer for text, as `transformers` reads it from a directory: whether a guest was content.

    pip install -e . torch transformers uvicorn httpx2
    python examples/models/text_transformer.py
    uvicorn --factory --app-dir examples/models text_transformer:make_app
    python examples/models/text_transformer.py --check

The second line trains a small model from nothing, for some seconds and without a download, and writes it into the directory reviews below
the one that you are in. Any other model for text classification that `save_pretrained` wrote can be there. The third line serves it on
http://127.0.0.1:8000. The last does both in a directory of its own, asks the server, and ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import transformers

from oip_asgi import InferenceServer, OIPApp, TensorSpec

DIRECTORY = "reviews"
INPUTS = [TensorSpec("text", "BYTES", [-1], content_type="str")]
OUTPUTS = [TensorSpec("label", "BYTES", [-1], content_type="str"), TensorSpec("score", "FP32", [-1])]


def load_reviews() -> Callable[[list[str]], tuple[list[str], list[float]]]:
    """Read tokenizer and weights. It runs once in each process, before the server is ready."""
    classify = transformers.pipeline("text-classification", model=DIRECTORY)

    def predict(text: list[str]) -> tuple[list[str], list[float]]:
        found = classify(text, batch_size=32, truncation=True)
        return [one["label"] for one in found], [one["score"] for one in found]

    return predict


def make_app() -> OIPApp:
    server = InferenceServer("reviews")
    # max_concurrency: a fast tokenizer may be used by one thread at a time ("Already borrowed" else)
    server.register("reviews", load=load_reviews, inputs=INPUTS, outputs=OUTPUTS, max_concurrency=1)
    return OIPApp(server, path="/v2")


# How the model is made, and asked. In your project these are other programs -----------------------------------------

LABELS = ["bad", "good"]
WORDS = {"good": ["tasty", "friendly", "warm", "lovely"], "bad": ["cold", "rude", "slow", "dirty"]}


def sentences() -> list[tuple[str, int]]:
    """All that guests say here, and whether they were content: "not" turns it around."""
    return [
        (f"the {noun} {verb} {negation}{word}", LABELS.index(label) ^ (negation != ""))
        for noun, verb, negation, label in product(["soup", "room", "waiter", "bar"], ["was", "is", "seemed"], ["", "not "], LABELS)
        for word in WORDS[label]
    ]


def is_unseen(place: int) -> bool:
    """Whether the model is asked about a sentence, and does not learn it."""
    return place % 5 == 0


def make_tokenizer(texts: list[str]) -> Any:
    """One token for each word."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]"]))
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 2)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", model_max_length=32
    )


def train() -> None:
    import torch

    torch.manual_seed(0)
    seen = [sentence for place, sentence in enumerate(sentences()) if not is_unseen(place)]
    tokenizer = make_tokenizer([text for text, _ in seen])
    config = transformers.DistilBertConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=32,
        dim=32,
        n_layers=2,
        n_heads=2,
        hidden_dim=64,
        id2label=dict(enumerate(LABELS)),
        label2id={label: place for place, label in enumerate(LABELS)},
    )
    model = transformers.DistilBertForSequenceClassification(config).train()
    tokens = tokenizer([text for text, _ in seen], padding=True, return_tensors="pt", return_token_type_ids=False)
    labels = torch.tensor([label for _, label in seen])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    for _ in range(60):
        optimizer.zero_grad()
        model(**tokens, labels=labels).loss.backward()
        optimizer.step()
    model.save_pretrained(DIRECTORY)
    tokenizer.save_pretrained(DIRECTORY)


def ask(url: str) -> bool:
    """Ask about all sentences that the model has not seen, in JSON."""
    import httpx2

    unseen = [sentence for place, sentence in enumerate(sentences()) if is_unseen(place)]
    request = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [len(unseen)], "data": [text for text, _ in unseen]}]}
    answer = httpx2.post(f"{url}/v2/models/reviews/infer", json=request, timeout=60).raise_for_status().json()
    labels, scores = (output["data"] for output in answer["outputs"])
    for (text, _), label, score in list(zip(unseen, labels, scores, strict=True))[:6]:
        print(f"{text:30} {label} {score:.3f}")
    right = sum(label == LABELS[truth] for label, (_, truth) in zip(labels, unseen, strict=True))
    print(right, "of", len(unseen), "are right")

    own_labels, own_scores = load_reviews()([text for text, _ in unseen])
    is_own = labels == own_labels and all(abs(score - own) < 1e-5 for score, own in zip(scores, own_scores, strict=True))
    return is_own and right >= 0.9 * len(unseen)


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        from checking import check

        sys.exit(check(__file__, ask))
    train()
