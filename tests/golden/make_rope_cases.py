#!/usr/bin/env python3
"""Writes tests/golden/rope_cases.json for tests/unit/agent/test_hf_rope.c: the frequencies that
transformers 4 and 5 compute for the rotary positions of a config.json that has old keys, new keys,
or both.

    tests/golden/make_rope_cases.py OLDER [FILE]

The script runs under transformers 5. OLDER is a folder with transformers 4 and its huggingface_hub
(pip install --target OLDER). A second process puts OLDER first in its path. No build runs this
script.

A case has a family and the keys that its config.json has in addition to BASE. If muster refuses the
file, the case also has words of the refusal. The file's rows are:

    name, family, config     as below
    refused                  words of muster's refusal, or null
    4, 5                     the inverse frequencies that this version computes, or its error
    export                   rope_theta and rope_scaling as muster exports the same positions
                             (transformers 5 computes the same frequencies from them, or this script
                             fails)
"""
import json
import os
import subprocess
import sys

BASE = dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=1, intermediate_size=16, vocab_size=32,
            max_position_embeddings=4096)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
WHOLE = dict(LLAMA3, original_max_position_embeddings=512)
LINEAR = dict(rope_type="linear", factor=2.5)
TWO, BOTH = "leave the right one", "by rope_parameters"

# name, family, keys, words of the refusal
CASES = [
    ("no key at all", "llama", {}, None),
    ("no key at all", "mixtral", {}, None),
    ("theta beside the sizes", "llama", dict(rope_theta=500000.0), None),
    ("theta beside the sizes, a whole number", "mixtral", dict(rope_theta=10000), None),
    ("theta in rope_parameters", "llama", dict(rope_parameters=dict(rope_type="default", rope_theta=500000.0)), None),
    ("theta in rope_parameters", "mixtral", dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0)), None),
    ("rope_parameters without a type", "llama", dict(rope_parameters=dict(rope_theta=500000.0)), None),
    ("rope_parameters without theta", "mixtral", dict(rope_parameters=dict(rope_type="default")), None),
    ("theta in both places, equal", "llama", dict(rope_theta=500000, rope_parameters=dict(rope_type="default", rope_theta=500000.0)), None),
    ("theta in both places, not equal", "llama",
     dict(rope_theta=10000.0, rope_parameters=dict(rope_type="default", rope_theta=500000.0)), TWO),
    ("theta in both places, not equal", "mixtral",
     dict(rope_theta=500000.0, rope_parameters=dict(rope_type="default", rope_theta=10000.0)), TWO),
    ("theta in rope_scaling", "llama", dict(rope_scaling=dict(LINEAR, rope_theta=500000.0)), None),
    ("theta in rope_scaling and beside the sizes, not equal", "llama",
     dict(rope_theta=10000.0, rope_scaling=dict(LINEAR, rope_theta=500000.0)), TWO),
    ("theta beside the sizes, and a rope_parameters without it", "llama",
     dict(rope_theta=500000.0, rope_parameters=dict(LINEAR)), None),
    ("theta is null", "llama", dict(rope_theta=None), "rope_theta is null"),
    ("theta beside the sizes is null, and one is in rope_parameters", "llama",
     dict(rope_theta=None, rope_parameters=dict(rope_type="default", rope_theta=500000.0)), None),
    ("theta in rope_parameters is null", "llama", dict(rope_theta=500000.0, rope_parameters=dict(rope_type="default", rope_theta=None)), TWO),
    ("theta is a word", "llama", dict(rope_theta="10000"), "rope_theta is \"10000\""),
    ("linear in rope_scaling", "llama", dict(rope_scaling=LINEAR), None),
    ("linear in rope_scaling, by the older key of the type", "llama", dict(rope_scaling=dict(type="linear", factor=4)), None),
    ("linear in rope_parameters", "llama", dict(rope_parameters=dict(LINEAR, rope_theta=500000.0)), None),
    ("linear in rope_parameters, by the older key of the type", "mixtral", dict(rope_parameters=dict(type="linear", factor=2.0)), None),
    ("linear without a factor", "llama", dict(rope_scaling=dict(rope_type="linear")), "factor is missing"),
    ("linear with a factor that is null", "llama", dict(rope_scaling=dict(rope_type="linear", factor=None)), "factor is null"),
    ("both keys of the type, equal", "llama", dict(rope_scaling=dict(LINEAR, type="linear")), None),
    ("both keys of the type, not equal", "llama", dict(rope_scaling=dict(WHOLE, type="linear")), TWO),
    ("a type that is null", "llama", dict(rope_scaling=dict(rope_type=None, factor=2.0)), "of type null"),
    ("a factor without a type", "llama", dict(rope_scaling=dict(factor=2.0)), None),
    ("an empty rope_scaling", "llama", dict(rope_scaling={}, rope_theta=500000.0), None),
    ("an empty rope_parameters", "llama", dict(rope_parameters={}, rope_theta=500000.0), None),
    ("rope_scaling and rope_parameters are null", "llama", dict(rope_scaling=None, rope_parameters=None), None),
    ("rope_scaling is null beside rope_parameters", "llama", dict(rope_scaling=None, rope_parameters=dict(LINEAR)), None),
    ("rope_scaling is empty beside rope_parameters", "llama", dict(rope_scaling={}, rope_parameters=dict(LINEAR)), None),
    ("rope_scaling beside rope_parameters, equal", "llama", dict(rope_scaling=LINEAR, rope_parameters=dict(LINEAR)), None),
    ("rope_scaling beside rope_parameters, equal with theta beside the sizes", "llama",
     dict(rope_theta=500000.0, rope_scaling=WHOLE, rope_parameters=dict(WHOLE, rope_theta=500000.0)), None),
    ("rope_scaling beside rope_parameters, of another type", "llama",
     dict(rope_scaling=LINEAR, rope_parameters=dict(rope_type="default", rope_theta=10000.0)), "of type linear and rope_parameters of type default"),
    ("rope_scaling beside rope_parameters, with another factor", "llama",
     dict(rope_scaling=LINEAR, rope_parameters=dict(LINEAR, factor=4.0)), BOTH),
    ("rope_scaling beside rope_parameters, with another theta", "llama",
     dict(rope_scaling=WHOLE, rope_parameters=dict(WHOLE, rope_theta=500000.0)), BOTH),
    ("rope_scaling beside rope_parameters, with another context", "llama",
     dict(rope_scaling=WHOLE, rope_parameters=dict(LLAMA3, original_max_position_embeddings=1024)), BOTH),
    ("llama3 in rope_scaling", "llama", dict(rope_theta=500000.0, rope_scaling=WHOLE), None),
    ("llama3 in rope_parameters", "llama", dict(rope_parameters=dict(WHOLE, rope_theta=500000.0)), None),
    ("llama3 in a mixtral", "mixtral", dict(rope_parameters=dict(WHOLE, low_freq_factor=2, high_freq_factor=3.5)), None),
    ("llama3, the original context beside the sizes", "llama",
     dict(original_max_position_embeddings=512, rope_scaling=LLAMA3), None),
    ("llama3, the original context in both places, equal", "llama",
     dict(original_max_position_embeddings=512, rope_scaling=WHOLE), None),
    ("llama3, the original context in both places, not equal", "llama",
     dict(original_max_position_embeddings=1024, rope_scaling=WHOLE), TWO),
    ("llama3, the original context in both places of a new file, not equal", "llama",
     dict(original_max_position_embeddings=1024, rope_parameters=dict(WHOLE, rope_theta=500000.0)), TWO),
    ("llama3, the original context nowhere", "llama", dict(rope_scaling=LLAMA3), None),
    ("llama3, the original context is null", "llama", dict(rope_scaling=dict(LLAMA3, original_max_position_embeddings=None)),
     "original_max_position_embeddings is null"),
    ("llama3 without low_freq_factor", "llama", dict(rope_scaling=dict(rope_type="llama3", factor=8.0, high_freq_factor=4.0)),
     "low_freq_factor is missing"),
    ("linear, an original context beside the sizes", "llama", dict(original_max_position_embeddings=512, rope_scaling=LINEAR), None),
    ("dynamic", "llama", dict(rope_scaling=dict(rope_type="dynamic", factor=2.0)), "of type dynamic;"),
    ("yarn", "llama", dict(rope_scaling=dict(rope_type="yarn", factor=2.0, original_max_position_embeddings=512)), "of type yarn;"),
    ("longrope", "llama", dict(rope_scaling=dict(rope_type="longrope", short_factor=[1.0] * 8, long_factor=[2.0] * 8, factor=2.0,
                                                 original_max_position_embeddings=512)), "of type longrope;"),
    ("proportional", "llama", dict(rope_parameters=dict(rope_type="proportional", rope_theta=10000.0)), "of type proportional;"),
    ("a type that nobody has", "llama", dict(rope_scaling=dict(rope_type="spiral", factor=2.0)), "of type spiral;"),
    ("rope_scaling is a number", "llama", dict(rope_scaling=2.0), "rope_scaling is 2, not an object"),
    ("heads rotated in part, beside the sizes", "llama", dict(partial_rotary_factor=0.5, rope_scaling=LINEAR), "partial_rotary_factor is 0.5"),
    ("heads rotated in part, in rope_parameters", "llama", dict(rope_parameters=dict(LINEAR, partial_rotary_factor=0.5)),
     "partial_rotary_factor is 0.5"),
    ("heads rotated whole by that key", "llama", dict(rope_parameters=dict(LINEAR, partial_rotary_factor=1.0)), None),
    ("parameters for each type of layer", "llama",
     dict(layer_types=["full_attention"], rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=500000.0))),
     "each type of layer"),
]


def frequencies(family, keys):
    """Returns the frequencies that the installed transformers computes, or the error's name."""
    from transformers import AutoConfig, logging
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    from transformers.models.mixtral.modeling_mixtral import MixtralRotaryEmbedding
    logging.set_verbosity_error()
    kinds = dict(llama=LlamaRotaryEmbedding, mixtral=MixtralRotaryEmbedding)
    try:
        config = AutoConfig.for_model(family).from_dict(dict(BASE, model_type=family, **json.loads(json.dumps(keys))))
        rope = kinds[family](config)
        return [float(f"{x:.9g}") for x in rope.inv_freq.tolist()] + ([rope.attention_scaling] if rope.attention_scaling != 1 else [])
    except Exception as e:
        return type(e).__name__


def all_of(cases):
    return [frequencies(family, keys) for family, keys in cases]


def exported(family, keys):
    """Returns the keys that muster writes: the old ones, which both versions read."""
    from transformers import AutoConfig
    rope = dict(AutoConfig.for_model(family).from_dict(dict(BASE, model_type=family, **json.loads(json.dumps(keys)))).rope_parameters)
    kept = dict(linear=["factor"], llama3=["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"])
    names = kept.get(rope["rope_type"], [])
    if "original_max_position_embeddings" in names and keys.get("original_max_position_embeddings"):
        rope["original_max_position_embeddings"] = keys["original_max_position_embeddings"]
    numbers = {n: rope[n] if n.startswith("original") else float(rope[n]) for n in names}
    return dict(rope_theta=float(rope["rope_theta"]), rope_scaling=dict(numbers, rope_type=rope["rope_type"]) if names else None)


def older(folder, cases):
    out = subprocess.run([sys.executable, __file__, "--answer"], input=json.dumps(cases), text=True, check=True, stdout=subprocess.PIPE,
                         env=dict(os.environ, PYTHONPATH=folder))
    return json.loads(out.stdout)


def main(folder, path):
    import transformers
    cases = [(family, keys) for _, family, keys, _ in CASES]
    new, old = all_of(cases), older(folder, cases)
    exports = [None if words else exported(family, keys) for _, family, keys, words in CASES]
    again = [(family, keys) for (_, family, _, words), keys in zip(CASES, exports) if not words]
    again_new, again_old = iter(all_of(again)), iter(older(folder, again)["answers"])
    rows = []
    for (name, family, keys, words), n, o, export in zip(CASES, new, old["answers"], exports):
        assert words or isinstance(n, list), f"{name}: muster takes it, and transformers 5 fails with {n}"
        assert words or (n == next(again_new) and n == next(again_old)), f"{name}: the export is of other frequencies"
        rows.append(json.dumps({"name": name, "family": family, "config": keys, "refused": words, "4": o, "5": n, "export": export}))
    with open(path, "w") as f:
        f.write('{"versions": %s,\n "base": %s,\n "cases": [\n%s\n]}\n' %
                (json.dumps([old["version"], transformers.__version__]), json.dumps(BASE), ",\n".join(rows)))
    for row in map(json.loads, rows):
        same = "same" if row["4"] == row["5"] else f"4: {row['4'] if isinstance(row['4'], str) else 'other frequencies'}"
        print(f"{row['name']:70} {row['family']:8} 5: {row['5'] if isinstance(row['5'], str) else 'reads it':12} {same:32} "
              f"muster: {'refuses' if row['refused'] else 'as 5'}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--answer"]:
        import transformers
        print(json.dumps(dict(version=transformers.__version__, answers=all_of(json.load(sys.stdin)))))
    else:
        main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else f"{sys.path[0]}/rope_cases.json")
