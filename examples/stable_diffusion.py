#!/usr/bin/env python3
"""Stable Diffusion 1.5 with diffusers, in f16: text encoder, UNet steps with guidance, VAE decode, a PNG.

Without --weights the networks have the architecture of Stable Diffusion 1.5 and random weights: the picture is noise,
time and memory are the real ones. Nothing is downloaded. --weights FOLDER takes a model that you have, in diffusers'
layout (with model_index.json), and draws --prompt.

--f16-sums lets the UNet sum runs of up to 32 products in f16 on wave: RDNA1 computes two of them in the time of one.
The decoder, whose numbers are larger, keeps its sums in f32.

A picture with a NaN or of one colour is an error.

--stress decodes in f16 and in f32 after scaling the decoder's layers so that its largest numbers come near the end of
f16 (65504), as those of some published VAEs do. The scale is one that group norms take away again, so both pictures must
be the same.
"""

import math
import sys

import torch
from common import Run, arguments, parsed, require

UNET = {"sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8}
SMALL_UNET = {
    "sample_size": 8, "cross_attention_dim": 32, "attention_head_dim": 2, "block_out_channels": (32, 64), "layers_per_block": 1,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}  # fmt: skip
VAE = {
    "block_out_channels": (128, 256, 512, 512), "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4, "layers_per_block": 2, "latent_channels": 4, "sample_size": 512,
}  # fmt: skip
SMALL_VAE = {**VAE, "block_out_channels": (32, 32, 64, 64), "layers_per_block": 1, "sample_size": 64}
TEXT = {
    "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12, "projection_dim": 768,
    "vocab_size": 49408, "bos_token_id": 49406, "eos_token_id": 49407,
}  # fmt: skip
SMALL_TEXT = {**TEXT, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
SCHEDULE = {
    "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "clip_sample": False, "set_alpha_to_one": False,
    "steps_offset": 1,
}  # fmt: skip


def random_pipeline(small):
    """Random weights, made in f16: there is never an f32 copy."""
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.set_default_dtype(torch.float16)
    unet = UNet2DConditionModel(**(SMALL_UNET if small else UNET))
    vae = AutoencoderKL(**(SMALL_VAE if small else VAE))
    text = CLIPTextModel(CLIPTextConfig(**(SMALL_TEXT if small else TEXT)))
    torch.set_default_dtype(torch.float32)
    return StableDiffusionPipeline(
        vae=vae, text_encoder=text, tokenizer=None, unet=unet, scheduler=DDIMScheduler(**SCHEDULE), safety_checker=None,
        feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip


def local_pipeline(folder):
    from diffusers import StableDiffusionPipeline

    return StableDiffusionPipeline.from_pretrained(folder, torch_dtype=torch.float16, local_files_only=True, safety_checker=None)


def embeddings(pipe, run, prompt):
    """What the text encoder makes of the prompt and of the empty one; of random tokens without a tokenizer."""
    if pipe.tokenizer:
        kept = {"padding": "max_length", "max_length": pipe.tokenizer.model_max_length, "truncation": True, "return_tensors": "pt"}
        tokens = pipe.tokenizer([prompt, ""], **kept).input_ids
    else:
        tokens = torch.randint(1, 49000, (2, 77), generator=torch.Generator().manual_seed(run.options.seed))
        tokens[:, 0], tokens[:, -1] = 49406, 49407
    with torch.no_grad():
        return pipe.text_encoder(tokens.to(run.device))[0].chunk(2)


def checked(image):
    """The picture in 0..1, or an error where it shows nothing."""
    bad = image.numel() - image.isfinite().sum().item()
    if bad:
        sys.exit(f"{bad} of {image.numel()} numbers of the picture are NaN or infinite: the decoder overflowed f16")
    image = (image.float().cpu() / 2 + 0.5).clamp(0, 1)
    if image.std() < 1e-3:
        sys.exit(f"the picture has one colour ({image.mean().item():.3f})")
    return image


def sections(decoder):
    """The parts of the decoder between which the stream, to which residual blocks add, is resampled."""
    found = [[decoder.conv_in, decoder.mid_block]]
    for block in decoder.up_blocks:
        found[-1] += block.resnets
        if block.upsamplers:
            found.append([block.upsamplers[0].conv])
    return found


def branches(parts):
    """Each residual branch in these parts, and its last layer: it alone decides how large the branch ends."""
    from diffusers.models.attention_processor import Attention
    from diffusers.models.resnet import ResnetBlock2D

    for module in (module for part in parts for module in part.modules()):
        if isinstance(module, ResnetBlock2D):
            yield module, module.conv2
        if isinstance(module, Attention):
            yield module, module.to_out[0]


def largest(decoder, call):
    """The largest number of the stream in each section."""
    found = [[] for _ in sections(decoder)]
    hooks = []
    for parts, seen in zip(sections(decoder), found):
        for layer in [parts[0], *(layer for pair in branches(parts) for layer in pair)]:
            hooks.append(layer.register_forward_hook(lambda _, __, out, seen=seen: seen.append(out.abs().max())))
    call()
    for hook in hooks:
        hook.remove()
    return [torch.stack(seen).max().item() for seen in found]


def scale(parts, before, factor):
    """Multiplies the stream in these parts, where it was multiplied by `before` in the parts before them."""
    parts[0].weight.mul_(factor / before)
    parts[0].bias.mul_(factor)
    for branch, last in branches(parts):
        last.weight.mul_(factor)
        last.bias.mul_(factor)
        if getattr(branch, "conv_shortcut", None) is not None:
            branch.conv_shortcut.bias.mul_(factor)


def stress(run, vae, latents):
    """The distance of the f16 picture to the f32 one, relative to the latter, with the stream near the end of f16."""
    vae.to(torch.float32)
    wide = latents.float()
    before = 1.0
    for parts, peak in zip(sections(vae.decoder), largest(vae.decoder, lambda: vae.decode(wide))):
        factor = 2.0 ** math.floor(math.log2(62000 / peak))
        scale(parts, before, factor)
        before = factor
    peaks = largest(vae.decoder, lambda: vae.decode(wide))
    run.say(f"stress: the largest numbers of the decoder's parts are {', '.join(f'{peak:.0f}' for peak in peaks)}")
    exact = vae.decode(wide).sample.cpu()
    run.close()
    vae.to(torch.float16)
    with run.clock("stress, f16"):
        narrow = vae.decode(latents).sample.float().cpu()
    bad = narrow.numel() - narrow.isfinite().sum().item()
    if bad:
        sys.exit(f"stress: {bad} of {narrow.numel()} numbers of the f16 picture are NaN or infinite, none of the f32 one")
    error = ((narrow - exact).norm() / exact.norm()).item()
    run.say(f"stress: f16 differs from f32 by {error:.1e} of the picture's norm")
    if error > 0.02:
        sys.exit("stress: the f16 picture is not the f32 one")
    return {"stress_largest": peaks, "stress_error": error}


def main():
    parser = arguments(__doc__)
    parser.add_argument("--size", type=int, default=512, help="width and height of the picture")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float, default=7.5)
    parser.add_argument("--weights", help="a folder with a Stable Diffusion 1.x model in diffusers' layout")
    parser.add_argument("--prompt", default="a lighthouse on a cliff, oil painting", help="with --weights")
    parser.add_argument("--out", default="stable_diffusion.png")
    parser.add_argument("--f16-sums", action="store_true", help="the UNet may sum in f16, on wave")
    parser.add_argument("--stress", action="store_true", help="also compare f16 with f32 decode near the end of f16")
    options = parsed(parser, size=64, steps=3)
    require("diffusers", "transformers", "PIL")
    run = Run(options)
    from diffusers.utils import logging

    logging.set_verbosity_error()  # it warns of f16 on the CPU, which is slow but works
    with run.clock("load"):
        pipe = local_pipeline(options.weights) if options.weights else random_pipeline(options.small)
        pipe = pipe.to(run.device)
    pipe.set_progress_bar_config(disable=True)
    count = sum(p.numel() for part in (pipe.unet, pipe.vae, pipe.text_encoder) for p in part.parameters())
    run.say(f"{count / 1e6:.0f} million weights in f16, {2 * count / 2**30:.2f} GiB")
    with run.clock("text"):
        wanted, unwanted = embeddings(pipe, run, options.prompt)
    tick = run.ticker("UNet step", options.steps)

    def after_step(_pipe, _step, _time, values):
        tick()
        return values

    sums_in_f16 = options.f16_sums and run.device == "wave"
    if sums_in_f16:
        torch.wave.allow_fp16_accumulation("forward")
    latents = pipe(
        prompt_embeds=wanted, negative_prompt_embeds=unwanted, height=options.size, width=options.size, output_type="latent",
        num_inference_steps=options.steps, guidance_scale=options.guidance, callback_on_step_end=after_step,
        generator=torch.Generator().manual_seed(options.seed),
    ).images  # fmt: skip
    run.close()
    if sums_in_f16:
        torch.wave.allow_fp16_accumulation(False)
    latents = latents / pipe.vae.config.scaling_factor
    with torch.no_grad(), run.clock("VAE decode"):
        image = pipe.vae.decode(latents).sample
    image = checked(image)[0]
    from torchvision.transforms.functional import to_pil_image

    to_pil_image(image).save(options.out)
    run.say(f"{options.out}: {options.size}x{options.size}, colours {image.min().item():.2f} to {image.max().item():.2f}, deviation {image.std().item():.3f}")
    numbers = {"latents": latents.float().flatten()[:8].tolist(), "mean": image.mean().item(), "deviation": image.std().item()}
    if options.stress:
        pipe.unet.to("cpu")
        run.close()
        with torch.no_grad():
            numbers |= stress(run, pipe.vae, latents)
    run.finish(**numbers)


if __name__ == "__main__":
    main()
