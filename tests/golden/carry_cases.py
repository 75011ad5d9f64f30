"""Invalid or unusual folders, each made from one of carry/ with only Python's standard library, and
what muster prints about each.

    carry_cases.py make GOLDEN CASE FOLDER     makes one folder
    carry_cases.py all GOLDEN FOLDER           makes FOLDER/1 and so on. Prints a line for each
                                               with these columns, divided by tabs: its number, the
                                               exit status of muster's `ckpt import`, a piece of
                                               what it prints, the case, and what transformers does

carry/expected.json contains what transformers does with the same folders. make_carry.py wrote it.
"""
import json
import os
import shutil
import struct
import sys


def edit(folder, name, **keys):
    path = os.path.join(folder, name)
    value = json.load(open(path))
    value.update(keys)
    json.dump(value, open(path, "w"))


def tensors(folder):
    data = open(f"{folder}/model.safetensors", "rb").read()
    (n,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    return {k: [v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]] for k, v in head.items()}


def store(folder, all_of_them, name="model.safetensors"):
    head, body = {"__metadata__": {"format": "pt"}}, b""
    for key, (dtype, shape, raw) in all_of_them.items():
        head[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(head).encode()
    open(f"{folder}/{name}", "wb").write(struct.pack("<Q", len(text)) + text + body)


def poke(folder, name, words):
    all_of_them = tensors(folder)
    raw = bytearray(all_of_them[name][2])
    for at, word in words.items():
        raw[2 * at:2 * at + 2] = struct.pack("<H", word)
    all_of_them[name][2] = bytes(raw)
    store(folder, all_of_them)


def add(folder, name, tensor):
    all_of_them = tensors(folder)
    all_of_them[name] = tensor
    store(folder, all_of_them)


def without_weights(folder, *files):
    os.remove(f"{folder}/model.safetensors")
    for name in files:
        open(f"{folder}/{name}", "wb").write(b"no weights\n")


def adapter(folder):
    os.remove(f"{folder}/model.safetensors")
    os.remove(f"{folder}/config.json")
    json.dump({"peft_type": "LORA", "base_model_name_or_path": "an-org/base"}, open(f"{folder}/adapter_config.json", "w"))
    store(folder, {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": ["F32", [1, 16], bytes(64)]}, "adapter_model.safetensors")


def classifier(folder):
    edit(folder, "config.json", architectures=["LlamaForSequenceClassification"], num_labels=2)
    add(folder, "score.weight", ["BF16", [2, 16], bytes(64)])


NAN, INF, MINUS_INF = 0x7FC0, 0x7F80, 0xFF80

# name: (model, change, exit status, a piece of what muster prints)
CASES = {
    "as it is": ("llama", lambda f: None, 0, "llama of "),
    "pytorch_model.bin": ("gpt2", lambda f: without_weights(f, "pytorch_model.bin"), 1, "holds weights in pytorch_model.bin, a pickle"),
    "pytorch_model.bin.index.json": ("gpt2", lambda f: without_weights(f, "pytorch_model.bin.index.json"), 1, "holds weights in pytorch_model-"),
    "gguf": ("llama", lambda f: without_weights(f, "model-q4.gguf"), 1, "holds weights in a GGUF file"),
    "Meta's own": ("llama", lambda f: without_weights(f, "consolidated.00.pth"), 1, "holds weights in Meta's own layout"),
    "TensorFlow": ("gpt2", lambda f: without_weights(f, "tf_model.h5"), 1, "holds weights for TensorFlow"),
    "no weights": ("llama", lambda f: without_weights(f), 1, "has neither model.safetensors nor model.safetensors.index.json"),
    "adapter": ("llama", adapter, 1, "holds an adapter (PEFT)"),
    "adapter beside a model": ("llama", lambda f: json.dump({"peft_type": "LORA", "base_model_name_or_path": f}, open(f"{f}/adapter_config.json", "w")),
                               1, "holds an adapter (PEFT)"),
    "sequence classifier": ("llama", classifier, 1, "architectures has LlamaForSequenceClassification: it is a sequence classifier"),
    "score.weight": ("llama", lambda f: add(f, "score.weight", ["BF16", [2, 16], bytes(64)]), 1,
                     "tensor score.weight: it is the head of a sequence classifier"),
    "double heads": ("gpt2", lambda f: edit(f, "config.json", architectures=["GPT2DoubleHeadsModel"]), 1, "a model with a second head"),
    "quantized": ("llama", lambda f: edit(f, "config.json", quantization_config={"quant_method": "gptq", "bits": 4}), 1, "its weights are quantized (gptq)"),
    "compiled": ("llama", lambda f: add(f, "_orig_mod.model.norm.weight", ["BF16", [16], bytes(32)]), 1, "the model is wrapped by torch.compile"),
    "NaN": ("llama", lambda f: poke(f, "model.norm.weight", {3: NAN}), 0, "note: tensor model.norm.weight: 1 NaN and 0 infinite of its 16 numbers"),
    "Inf": ("gpt2", lambda f: poke(f, "transformer.h.0.attn.c_attn.weight", {0: INF, 9: MINUS_INF, 11: NAN}), 0,
            "note: tensor transformer.h.0.attn.c_attn.weight: 1 NaN and 2 infinite of its 768 numbers"),
    "a directory for a tokenizer": ("llama", lambda f: (os.remove(f"{f}/tokenizer.json"), os.mkdir(f"{f}/tokenizer.json")), 1, "tokenizer.json: is not a regular file"),
    "a pipe for a chat template": ("llama", lambda f: (os.remove(f"{f}/chat_template.jinja"), os.mkfifo(f"{f}/chat_template.jinja")), 1,
                                   "chat_template.jinja: is not a regular file"),
    "a link that leads nowhere": ("llama", lambda f: os.symlink("../blobs/0", f"{f}/merges.txt"), 1, "merges.txt: is a link whose target does not exist"),
    "a huge config of generation": ("llama", lambda f: open(f"{f}/generation_config.json", "a").write(" " * (1 << 20)), 1, "generation_config.json: has "),
    "no generation_config.json": ("llama", lambda f: os.remove(f"{f}/generation_config.json"), 0, "with 4 files that came with it"),
    "ids that are none": ("llama", lambda f: edit(f, "config.json", bos_token_id="x", eos_token_id=[1, "y"], pad_token_id=-1), 0, "llama of "),
}


def make(golden, name, folder):
    model, change, *_ = CASES[name]
    shutil.copytree(os.path.join(golden, model), folder)
    change(folder)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(*sys.argv[2:])
    else:
        golden, folder = sys.argv[2:]
        os.mkdir(folder)
        beside = json.load(open(f"{golden}/expected.json"))["cases"]
        for i, (case, (_, _, status, text)) in enumerate(CASES.items(), 1):
            make(golden, case, f"{folder}/{i}")
            print(i, status, text, case, beside[case], sep="\t")
