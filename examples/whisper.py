#!/usr/bin/env python3
"""Whisper (tiny) with transformers: 30 seconds of sound through the encoder, then words one by one with the cache.

The weights are random unless --weights FOLDER names a Whisper model that you have; nothing is downloaded. The sound is drawn
by the script. Tokens are decoded greedily: the most likely one each time.
"""

import inspect

import torch
from common import Run, arguments, parsed, require

TINY = {"d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6, "decoder_attention_heads": 6,
        "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536, "vocab_size": 51865, "init_std": 0.1}  # fmt: skip
SMALL = {**TINY, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}  # fmt: skip
# Start, English, transcribe, no timestamps.
PROMPT = (50258, 50259, 50359, 50363)


def sound(seconds, rate=16000):
    """A tone that rises, with a beat."""
    time = torch.arange(int(seconds * rate)) / rate
    return (0.3 * (6.28 * (200 + 20 * time) * time).sin() * (6.28 * 2 * time).sin().abs()).numpy()


def main():
    parser = arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=100, help="how many are decoded")
    parser.add_argument("--dtype", choices=("f32", "f16"), default="f16")
    parser.add_argument("--weights", help="a folder with a Whisper model in transformers' layout")
    options = parsed(parser, tokens=8, dtype="f32")
    require("transformers", "numpy")
    from transformers import (
        DynamicCache,
        EncoderDecoderCache,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
    )
    from transformers.modeling_outputs import BaseModelOutput

    run = Run(options)
    dtype = {"f32": torch.float32, "f16": torch.float16}[options.dtype]
    with run.clock("load"):
        if options.weights:
            model = WhisperForConditionalGeneration.from_pretrained(options.weights, dtype=dtype, local_files_only=True)
        else:
            torch.set_default_dtype(dtype)
            model = WhisperForConditionalGeneration(WhisperConfig(**(SMALL if options.small else TINY)))
            torch.set_default_dtype(torch.float32)
        model = model.to(run.device).eval()
    run.say(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} million weights")
    extractor = WhisperFeatureExtractor(feature_size=model.config.num_mel_bins)
    features = extractor(sound(30), sampling_rate=16000, return_tensors="pt").input_features.to(run.device, dtype)
    with torch.no_grad():
        for _ in run.steps("encoder, 30 s of sound", 3):
            heard = model.get_encoder()(features).last_hidden_state
        heard = BaseModelOutput(last_hidden_state=heard)
        next_ids, tokens = torch.tensor([PROMPT], device=run.device), []
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        # Older releases of transformers have the older name.
        name = "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"
        for _ in run.steps("token", options.tokens):
            out = model(encoder_outputs=heard, decoder_input_ids=next_ids, use_cache=True, **{name: cache})
            next_ids = out.logits[:, -1:].argmax(-1)
            tokens.append(next_ids)
    logits = out.logits[0, -1].float()
    if not logits.isfinite().all() or logits.std() == 0:
        raise SystemExit("the logits are NaN, infinite or all the same")
    tokens = torch.cat(tokens, 1)[0].tolist()
    run.say(f"{1 / run.seconds['token']:.1f} tokens a second: {tokens[:8]}")
    if options.weights:
        try:
            from transformers import WhisperTokenizer

            run.say(WhisperTokenizer.from_pretrained(options.weights, local_files_only=True).decode(tokens))
        except OSError:
            run.say("the folder has no tokenizer")
    run.finish(tokens=tokens, heard=heard.last_hidden_state[0, 0, :8].tolist(), logits=logits[:8].tolist())


if __name__ == "__main__":
    main()
