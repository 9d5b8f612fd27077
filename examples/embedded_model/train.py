#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the embedded model: a llama of about a million parameters that reads and writes bytes.

Its text is the six novels of Jane Austen, in the public domain, as the Debian package `r-cran-janeaustenr`
carries them. Nothing of R is needed: the package's data file is read here. What comes out is an ordinary
Hugging Face directory, model/, and a piece of text that the training never saw, held_out.txt.

    python3 train.py                  fetch the text (apt-get download), train, write model/ and held_out.txt
    python3 train.py --steps 300      the same in a minute: a worse model of the same shape
    python3 train.py --minutes 20     the same, with a schedule that ends in 20 minutes even on a slow machine
    python3 train.py --novels FILE    with the package already unpacked: its .../janeaustenr/data/Rdata.rdb
    python3 train.py --sample "It was a "      train nothing: continue a prompt with what model/ holds

Needs Python 3.9 and PyTorch 1.13 or newer, no GPU. With Debian's PyTorch install `libopenblas0` too: the reference BLAS
is ten times slower. Matrices are multiplied in bfloat16, which a processor with AVX512-BF16 does fast; on another one
say --products float32. Seeds are fixed. Two runs agree bit for bit where the PyTorch build, the BLAS, the processor and
--threads agree and --minutes did not cut in; elsewhere sums round differently and the weights differ a little.
"""
import argparse
import hashlib
import json
import math
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "r-cran-janeaustenr"

# The shape. Eight heads of each kind and F/32 = 16, so tensor parallelism by 2, 4 and 8 cuts it evenly.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": None,
    "eos_token_id": None,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initializer_range": 0.05,
    "intermediate_size": 512,
    "max_position_embeddings": 512,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 8,
    "pad_token_id": None,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 256,
}
# A token id is the value of a byte. Said here, so that no reader has to guess it from the vocabulary's size.
TOKENIZER = {"tokenizer_class": "ByteLevelVocabulary", "tenon_vocabulary": "bytes"}
GENERATION = {"do_sample": True, "max_new_tokens": 256, "temperature": 0.5}


# ---- the text ----------------------------------------------------------------------------------------------

# Where each novel lies in Rdata.rdb, in order of publication: offset, length (what Rdata.rdx says of it).
NOVELS = {
    "Sense and Sensibility": (0x145DFB, 0x04113C),
    "Pride and Prejudice": (0x103B3E, 0x0422BD),
    "Mansfield Park": (0x055F2B, 0x055C8D),
    "Emma": (0x000000, 0x055F2B),
    "Northanger Abbey": (0x0ABBB8, 0x02AC5C),
    "Persuasion": (0x0D6814, 0x02D32A),
}
NOVELS_SHA256 = "06961aa12005b9a6fe40b34ce8f3ca632bb6ef5b1172e4b98f2f509589b3f541"  # of the text as read() returns it


def fetch(folder):
    """Downloads and unpacks the package under `folder`; returns the path of its data file. Installs nothing."""
    subprocess.run(["apt-get", "download", "-q", PACKAGE], cwd=folder, check=True)
    (archive,) = pathlib.Path(folder).glob(f"{PACKAGE}_*.deb")
    subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=True)
    (data,) = pathlib.Path(folder).glob("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
    return data


def lines_of(block):
    """The lines of one novel. A block is a big-endian length, then zlib; inside is R's XDR serialisation, version 3,
    of one character vector: 14 bytes of versions, the native encoding's name, and then type 16, a count, the strings.
    """
    data = zlib.decompress(block[4:])
    (name_length,) = struct.unpack_from(">i", data, 14)
    at = 18 + name_length
    kind, count = struct.unpack_from(">Ii", data, at)
    assert data[:2] == b"X\n" and kind == 16, "not a serialised R character vector"
    at += 8
    for _ in range(count):
        _, length = struct.unpack_from(">Ii", data, at)
        at += 8
        yield data[at : at + length].decode("utf-8")
        at += length
    assert at == len(data)


def read(path):
    """All six novels as ASCII: one line to a paragraph, an empty line between two, no underscores for italics."""
    file = pathlib.Path(path).read_bytes()
    books = []
    for offset, length in NOVELS.values():
        text = "\n".join(line.strip() for line in lines_of(file[offset : offset + length]))
        text = text.split("\nA NOTE ON THE TEXT\n")[0]  # a modern editor's, at the end of Northanger Abbey
        text = text.replace("_", "").replace("\u00a3", "L")
        paragraphs = [re.sub(r"\s+", " ", p).strip() for p in re.split(r"\n\s*\n", text)]
        books.append("\n\n".join(p for p in paragraphs if p))
    text = ("\n\n".join(books) + "\n").encode("ascii")
    if hashlib.sha256(text).hexdigest() != NOVELS_SHA256:
        sys.exit(f"{path}: not the text that this script was written for (another version of {PACKAGE}?)")
    return text


def split(text, held_out_bytes=16384):
    """Training text, held-out text: the last paragraphs, at most `held_out_bytes` long."""
    cut = text.index(b"\n\n", len(text) - held_out_bytes) + 2
    return text[:cut], text[cut:]


# ---- the model: plain functions over a dictionary that has Hugging Face's names -------------------------------

def initial_weights(c, generator):
    H, D, V, N = c["hidden_size"], c["head_dim"], c["vocab_size"], c["intermediate_size"]
    Q, K, L = c["num_attention_heads"], c["num_key_value_heads"], c["num_hidden_layers"]
    std = c["initializer_range"]

    def normal(rows, columns, scale=1.0):
        return torch.randn(rows, columns, generator=generator) * (std * scale)

    w = {"model.embed_tokens.weight": normal(V, H), "model.norm.weight": torch.ones(H), "lm_head.weight": normal(V, H)}
    for i in range(L):
        p = f"model.layers.{i}."
        w[p + "input_layernorm.weight"] = torch.ones(H)
        w[p + "self_attn.q_proj.weight"] = normal(Q * D, H)
        w[p + "self_attn.k_proj.weight"] = normal(K * D, H)
        w[p + "self_attn.v_proj.weight"] = normal(K * D, H)
        # What adds to the residual stream starts smaller: there are 2 L of these.
        w[p + "self_attn.o_proj.weight"] = normal(H, Q * D, (2 * L) ** -0.5)
        w[p + "post_attention_layernorm.weight"] = torch.ones(H)
        w[p + "mlp.gate_proj.weight"] = normal(N, H)
        w[p + "mlp.up_proj.weight"] = normal(N, H)
        w[p + "mlp.down_proj.weight"] = normal(H, N, (2 * L) ** -0.5)
    return w


def rope_tables(c):
    """cos and sin of every position's angles, [positions, head_dim], the two halves alike."""
    D = c["head_dim"]
    frequency = c["rope_theta"] ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = torch.outer(torch.arange(c["max_position_embeddings"], dtype=torch.float64), frequency)
    angle = torch.cat([angle, angle], dim=1)
    return angle.cos().float(), angle.sin().float()


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, cos, sin):
    """Rotary embedding, half-split: element j turns with element j + D/2."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def logits(c, w, tables, ids):
    """ids [B, T] -> logits [B, T, V]."""
    B, T = ids.shape
    Q, K, D = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    cos, sin = tables[0][:T], tables[1][:T]
    mask = torch.full((T, T), -math.inf).triu(1)
    x = F.embedding(ids, w["model.embed_tokens.weight"])
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = rms_norm(x, w[p + "input_layernorm.weight"], c["rms_norm_eps"])
        q = F.linear(h, w[p + "self_attn.q_proj.weight"]).view(B, T, Q, D).transpose(1, 2)
        k = F.linear(h, w[p + "self_attn.k_proj.weight"]).view(B, T, K, D).transpose(1, 2)
        v = F.linear(h, w[p + "self_attn.v_proj.weight"]).view(B, T, K, D).transpose(1, 2)
        q, k = rotate(q, cos, sin) * D**-0.5, rotate(k, cos, sin)
        k, v = (t.repeat_interleave(Q // K, dim=1) if Q != K else t for t in (k, v))
        attended = ((q @ k.transpose(2, 3)) + mask).softmax(-1) @ v
        x = x + F.linear(attended.transpose(1, 2).reshape(B, T, Q * D), w[p + "self_attn.o_proj.weight"])
        h = rms_norm(x, w[p + "post_attention_layernorm.weight"], c["rms_norm_eps"])
        gated = F.silu(F.linear(h, w[p + "mlp.gate_proj.weight"])) * F.linear(h, w[p + "mlp.up_proj.weight"])
        x = x + F.linear(gated, w[p + "mlp.down_proj.weight"])
    return F.linear(rms_norm(x, w["model.norm.weight"], c["rms_norm_eps"]), w["lm_head.weight"])


def loss_of(c, w, tables, ids):
    """Mean of -ln p(next byte) over ids [B, T+1]: nats per byte."""
    out = logits(c, w, tables, ids[:, :-1])
    return F.cross_entropy(out.reshape(-1, c["vocab_size"]).float(), ids[:, 1:].reshape(-1))


@torch.no_grad()
def held_out_loss(c, w, tables, text, window=512):
    """Nats per byte of `text`, in consecutive windows of `window` predicted bytes; a shorter last one is dropped."""
    ids = torch.tensor(list(text))
    rows = [ids[i : i + window + 1] for i in range(0, len(ids) - window, window)]
    return sum(loss_of(c, w, tables, r[None]).item() for r in rows) / len(rows)


@torch.no_grad()
def continuation(c, w, tables, prompt, count, temperature, seed=0):
    """`count` bytes after `prompt`: the likeliest ones at temperature 0, else drawn."""
    generator = torch.Generator().manual_seed(seed)
    ids = list(prompt.encode())
    for _ in range(count):
        last = logits(c, w, tables, torch.tensor([ids[-c["max_position_embeddings"] :]]))[0, -1]
        if temperature == 0:
            ids.append(int(last.argmax()))
        else:
            ids.append(int(torch.multinomial((last / temperature).softmax(0), 1, generator=generator)))
    return bytes(ids).decode("utf-8", "replace")


# ---- safetensors -------------------------------------------------------------------------------------------

def write_safetensors(path, tensors):
    """bfloat16, names sorted, data in the header's order, the header padded with spaces to a multiple of 8."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        size = 2 * tensors[name].numel()
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            bits = tensors[name].to(torch.bfloat16).contiguous().view(torch.int16)  # rounds to nearest, ties to even
            file.write(bits.numpy().astype("<i2").tobytes())


def read_safetensors(path):
    """The tensors of such a file, widened to float32."""
    file = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack_from("<Q", file)
    tensors = {}
    for name, entry in json.loads(file[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + o for o in entry["data_offsets"])
            bits = torch.frombuffer(bytearray(file[begin:end]), dtype=torch.int16)
            tensors[name] = bits.view(torch.bfloat16).view(entry["shape"]).float()
    return tensors


# ---- training ----------------------------------------------------------------------------------------------

BATCH = 2048  # bytes to a step


def train(c, text, held_out, args):
    """AdamW, a short warm-up, then a cosine. Rows of 128 bytes at first, which cost least; of 256 for a fifth of the
    steps; of 512 for the last fifth, while the rate is still large enough to teach the positions not yet seen.
    BATCH bytes to a step throughout. Returns the weights, the mean loss of the last steps, the steps done, seconds."""
    generator = torch.Generator().manual_seed(args.seed)
    start = read_safetensors(args.out / "model" / "model.safetensors") if args.resume else initial_weights(c, generator)
    w = {name: t.requires_grad_() for name, t in start.items()}
    decayed = [t for t in w.values() if t.dim() == 2]
    others = [t for t in w.values() if t.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.98), eps=1e-8)
    tables = rope_tables(c)
    ids = torch.tensor(list(text))
    begin, mean, step = time.monotonic(), None, 0
    while True:
        elapsed = time.monotonic() - begin
        done = max(step / args.steps, elapsed / (60 * args.minutes))
        if done >= 1:
            break
        warm = (step + 1) / (20 if args.resume else 200)
        rate = args.rate * min(warm, 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        T = 512 if args.resume or done >= 0.8 else 256 if done >= 0.6 else 128
        starts = torch.randint(len(ids) - T, (BATCH // T, 1), generator=generator)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.products == "bfloat16"):
            loss = loss_of(c, w, tables, ids[starts + torch.arange(T + 1)])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(w.values()), 1.0)
        optimizer.step()
        step += 1
        mean = loss.item() if mean is None else 0.98 * mean + 0.02 * loss.item()
        if step % 100 == 0:
            line = f"step {step:5d} of {args.steps}  {elapsed:6.0f} s  rate {rate:.5f}  loss {mean:.4f}"
            if step % 1000 == 0:
                line += f"  held out {held_out_loss(c, w, tables, held_out):.4f}"
            print(line, flush=True)
    return {name: t.detach() for name, t in w.items()}, mean, step, elapsed


README = """# A llama of {parameters:,} parameters that writes a little like Jane Austen

Small enough to sit in a repository and to be run by a test, real enough that what it says can be read. An ordinary
Hugging Face directory: `LlamaForCausalLM`, {layers} layers, hidden {hidden}, {heads} heads of {head_dim}, FFN {ffn},
bfloat16. **A token is a byte**: the vocabulary has 256 entries, an id is the byte's value, and
`tokenizer_config.json` says so (`"tenon_vocabulary": "bytes"`). There is no begin or end token; a prompt is its bytes,
at most {positions} with what follows.

## Text
Jane Austen's six novels, published from 1811 to 1818 and in the public domain:
{names}.
They are taken from the Debian package `{package}`, whose packaging is under the MIT licence; no code of it is here.
{train_bytes:,} bytes were trained on. The last {held_out_bytes:,}, the end of Persuasion, were kept out and are in
`../held_out.txt`.
The weights are under the licence of the rest of this repository, Apache-2.0.

## Making
`{command}` in the folder above, on {date}: AdamW, {steps} steps of {batch} bytes,
{minutes:.1f} minutes on {threads} processor threads, PyTorch {torch}, float32 with products in {products}, seed {seed}.
The weights were rounded once, at the end, to bfloat16 (nearest, ties to even).

| | nats per byte | perplexity per byte |
| --- | --- | --- |
| training, mean of the last steps | {train_loss:.3f} | {train_ppl:.2f} |
| held out, float32 weights | {loss_fp32:.4f} | {ppl_fp32:.3f} |
| held out, the bfloat16 weights of this directory | {loss_bf16:.4f} | {ppl_bf16:.3f} |

Held out: consecutive windows of 512 predicted bytes, each from an empty cache; float32 arithmetic in PyTorch.

## Saying
By PyTorch, from this directory's weights. Greedy, after `{prompt}`:
```text
{greedy}
```
At temperature {temperature}:
```text
{drawn}
```
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=7000)
    parser.add_argument("--rate", type=float, default=3e-3, help="the highest learning rate")
    parser.add_argument("--seed", type=int, default=1811)
    parser.add_argument("--resume", action="store_true", help="go on from what model/ holds, rows of 512 only")
    parser.add_argument("--minutes", type=float, default=math.inf, help="hurry the schedule so that it ends by then")
    parser.add_argument("--products", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--novels", help="the package's Rdata.rdb; without it the package is downloaded")
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="where model/ and held_out.txt go")
    parser.add_argument("--sample", metavar="PROMPT", help="continue PROMPT with what model/ holds, and end")
    parser.add_argument("--temperature", type=float, default=GENERATION["temperature"], help="0: greedy")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = args.out / "model"
    tables = rope_tables(CONFIG)

    if args.sample is not None:
        w = read_safetensors(folder / "model.safetensors")
        print(continuation(CONFIG, w, tables, args.sample, GENERATION["max_new_tokens"], args.temperature, args.seed))
        return

    with tempfile.TemporaryDirectory() as scratch:
        text, held_out = split(read(args.novels or fetch(scratch)))
    w, train_loss, steps, seconds = train(CONFIG, text, held_out, args)

    folder.mkdir(parents=True, exist_ok=True)
    (args.out / "held_out.txt").write_bytes(held_out)
    write_safetensors(folder / "new.safetensors", w)
    (folder / "new.safetensors").replace(folder / "model.safetensors")
    for name, value in ("config", CONFIG), ("tokenizer_config", TOKENIZER), ("generation_config", GENERATION):
        (folder / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n")

    rounded = read_safetensors(folder / "model.safetensors")
    fp32, bf16 = (held_out_loss(CONFIG, x, tables, held_out) for x in (w, rounded))
    prompt, temperature = "It was a ", GENERATION["temperature"]
    hurried = "" if math.isinf(args.minutes) else f" --minutes {args.minutes:g}"
    resumed = " --resume" if args.resume else ""
    command = f"python3 train.py{resumed} --steps {args.steps}{hurried} --rate {args.rate:g} --seed {args.seed}"
    page = README.format(
        # the shape
        parameters=sum(t.numel() for t in w.values()), layers=CONFIG["num_hidden_layers"], hidden=CONFIG["hidden_size"],
        heads=CONFIG["num_attention_heads"], head_dim=CONFIG["head_dim"], ffn=CONFIG["intermediate_size"],
        positions=CONFIG["max_position_embeddings"],
        # the text
        names=", ".join(NOVELS), package=PACKAGE, train_bytes=len(text), held_out_bytes=len(held_out),
        # the making
        command=command, date=time.strftime("%Y-%m-%d"), steps=steps, batch=BATCH, minutes=seconds / 60,
        threads=args.threads, torch=torch.__version__, products=args.products, seed=args.seed,
        train_loss=train_loss, train_ppl=math.exp(train_loss), loss_fp32=fp32, ppl_fp32=math.exp(fp32),
        loss_bf16=bf16, ppl_bf16=math.exp(bf16),
        # the saying
        prompt=prompt, temperature=temperature, greedy=continuation(CONFIG, rounded, tables, prompt, 256, 0),
        drawn=continuation(CONFIG, rounded, tables, prompt, 400, temperature, args.seed))
    (folder / "README.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
