#!/usr/bin/env python3
"""Draws products of matrices of real transformers and classifiers: suites/products.txt (reported) and, from what is left,
suites/products_tune.txt (fitted to). Same seed, same files.

A linear layer of so many rows gives three products: its output, the gradient of its input and that of its weights; attention
gives its two products and the four of their gradients.
"""

import pathlib
import random

SEED = 15
# Of linear layers, attention and classifiers.
DRAWN, TUNED = (15, 8, 7), (20, 10, 10)
SUITES = pathlib.Path(__file__).resolve().parent.parent / "suites"

# name, rows (tokens x images), [(inputs, outputs), ...], attention [(matrices, tokens, keys, width of a head), ...]
TRANSFORMERS = [
    ("deit_tiny b8", 8 * 197, [(192, 576), (192, 192), (192, 768), (768, 192)], [(24, 197, 197, 64)]),
    ("vit_s16 b1", 197, [(384, 1152), (384, 384), (384, 1536), (1536, 384)], [(6, 197, 197, 64)]),
    ("vit_b16 b16", 16 * 197, [(768, 2304), (768, 768), (768, 3072), (3072, 768)], [(192, 197, 197, 64)]),
    ("swin_t b8 stage1", 8 * 3136, [(96, 288), (96, 96), (96, 384), (384, 96)], [(1536, 49, 49, 32)]),
    ("swin_t b8 stage3", 8 * 196, [(384, 1152), (384, 384), (384, 1536), (1536, 384)], [(384, 49, 49, 32)]),
    ("mixer_b16 b8", 8 * 768, [(196, 384), (384, 196)], []),
    ("bert_base 128 b32", 32 * 128, [(768, 768), (768, 3072), (3072, 768)], [(384, 128, 128, 64)]),
    ("bert_base 384 b1", 384, [(768, 768), (768, 3072), (3072, 768)], [(12, 384, 384, 64)]),
    ("bert_large 512 b4", 4 * 512, [(1024, 1024), (1024, 4096), (4096, 1024)], [(64, 512, 512, 64)]),
    ("gpt2 1024 b2", 2 * 1024, [(768, 2304), (768, 768), (768, 3072), (3072, 768)], [(24, 1024, 1024, 64)]),
    ("gpt2_medium 512", 512, [(1024, 3072), (1024, 1024), (1024, 4096), (4096, 1024)], [(16, 512, 512, 64)]),
    ("t5_small 256 b8", 8 * 256, [(512, 512), (512, 2048), (2048, 512)], [(64, 256, 256, 64)]),
    ("whisper_base 1500", 1500, [(512, 512), (512, 2048), (2048, 512)], [(8, 1500, 1500, 64)]),
    ("clip_text b4", 4 * 77, [(768, 768), (768, 3072), (3072, 768)], [(48, 77, 77, 64)]),
    ("sd15 64x64", 4096, [(320, 320), (320, 2560), (1280, 320)], [(8, 4096, 4096, 40), (8, 4096, 77, 40)]),
    ("sd15 32x32 b2", 2048, [(640, 640), (640, 5120), (2560, 640)], [(16, 1024, 1024, 80), (16, 1024, 77, 80)]),
    ("sd15 16x16 b2", 512, [(1280, 1280), (1280, 10240), (5120, 1280)], [(16, 256, 256, 160), (16, 256, 77, 160)]),
    ("sd15 context b2", 2 * 77, [(768, 320), (768, 640), (768, 1280)], []),
    ("tinyllama 512", 512, [(2048, 2048), (2048, 256), (2048, 5632), (5632, 2048)], [(32, 512, 512, 64)]),
    ("llama7b 512", 512, [(4096, 4096), (4096, 11008), (11008, 4096)], [(32, 512, 512, 128)]),
]
CLASSIFIERS = [
    ("resnet18", [(512, 1000)]),
    ("resnet50", [(2048, 1000)]),
    ("vgg16", [(25088, 4096), (4096, 4096), (4096, 1000)]),
    ("alexnet", [(9216, 4096), (4096, 4096)]),
    ("mobilenet_v2", [(1280, 1000)]),
    ("mobilenet_v3", [(960, 1280), (1280, 1000)]),
    ("densenet121", [(1024, 1000)]),
    ("convnext_t", [(768, 1000)]),
    ("squeeze_excite efficientnet_b0", [(1152, 48), (48, 1152)]),
    ("mlp mnist", [(784, 512), (512, 512), (512, 10)]),
]
BATCHES = [1, 8, 32, 64, 128, 256]


def line(m: int, k: int, n: int, turned: str, batch: int = 1) -> str:
    words = ["MIOpenDriver gemm"] + ([f"-b {batch}"] if batch > 1 else [])
    return " ".join([*words, f"-m {m} -k {k} -n {n} -u {int(turned[0] == 'T')} -v {int(turned[1] == 'T')}"])


def linear(rows: int, inputs: int, outputs: int) -> list[str]:
    return [
        line(rows, inputs, outputs, "NT"),
        line(rows, outputs, inputs, "NN"),
        line(outputs, rows, inputs, "TN"),
    ]


def attention(count: int, tokens: int, keys: int, width: int) -> list[str]:
    return [
        line(tokens, width, keys, "NT", count),  # scores; also the gradient of the probabilities
        line(tokens, keys, width, "NN", count),  # output; also the gradient of the queries
        line(keys, tokens, width, "TN", count),  # gradients of keys and values
    ]


def pools() -> list[list[tuple[str, str]]]:
    """Linear layers of transformers, their attention, classifiers."""
    linears, heads, ends = [], [], []
    for name, rows, layers, attentions in TRANSFORMERS:
        linears += [(text, name) for layer in layers for text in linear(rows, *layer)]
        heads += [(text, name) for one in attentions for text in attention(*one)]
    for name, layers in CLASSIFIERS:
        for batch in BATCHES:
            ends += [(text, f"{name} b{batch}") for layer in layers for text in linear(batch, *layer)]
    return [list(dict(reversed(pool)).items()) for pool in (linears, heads, ends)]


def main() -> None:
    rng = random.Random(SEED)
    drawn, tuned = [], []
    for pool, first, second in zip(pools(), DRAWN, TUNED, strict=True):
        products = sorted(pool)
        rng.shuffle(products)
        drawn += products[:first]
        tuned += products[first : first + second]
    for file, products, what in (
        ("products.txt", drawn, "Drawn to be reported: nothing is fitted to them."),
        ("products_tune.txt", tuned, "Drawn from what the report leaves: constants are fitted to them."),
    ):
        head = f"# Products of transformers and classifiers. {what}\n# Made by scripts/draw_products.py.\n"
        rows = "".join(f"{text} # {name}\n" for text, name in products)
        (SUITES / file).write_text(head + rows, encoding="utf-8")


if __name__ == "__main__":
    main()
