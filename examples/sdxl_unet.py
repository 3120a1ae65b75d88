#!/usr/bin/env python3
"""The UNet of Stable Diffusion XL on a card that is smaller than its weights: 4.8 GiB in f16, group by group.

diffusers' group offload keeps the weights in the computer's memory, and brings each layer's to the device when its turn
comes. The architecture is SDXL's at 1024x1024, the weights are random, nothing is downloaded. Needs 6 GB of free memory in
the computer. --resident keeps all weights on the device, to compare.
"""

import torch
from common import Run, arguments, parsed, require

SDXL = {
    "sample_size": 128, "block_out_channels": (320, 640, 1280), "layers_per_block": 2, "cross_attention_dim": 2048,
    "attention_head_dim": (5, 10, 20), "transformer_layers_per_block": (1, 2, 10), "use_linear_projection": True,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256, "projection_class_embeddings_input_dim": 2816,
}  # fmt: skip
SMALL = {
    **SDXL, "sample_size": 16, "block_out_channels": (32, 64, 64), "layers_per_block": 1, "cross_attention_dim": 64,
    "attention_head_dim": (2, 2, 4), "transformer_layers_per_block": (1, 1, 2), "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 112,
}  # fmt: skip


def main():
    parser = arguments(__doc__)
    parser.add_argument("--size", type=int, default=1024, help="width and height of the picture")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--groups", choices=("block_level", "leaf_level"), default="block_level", help="what moves at once")
    parser.add_argument("--resident", action="store_true", help="all weights on the device, no offload")
    options = parsed(parser, size=128, steps=2)
    require("diffusers", "accelerate")
    from diffusers import UNet2DConditionModel
    from diffusers.hooks import apply_group_offloading

    run = Run(options)
    with run.clock("load"):
        torch.set_default_dtype(torch.float16)
        unet = UNet2DConditionModel(**(SMALL if options.small else SDXL)).eval()
        torch.set_default_dtype(torch.float32)
        if options.resident:
            unet.to(run.device)
        else:
            extra = {"num_blocks_per_group": 1} if options.groups == "block_level" else {}
            apply_group_offloading(unet, onload_device=torch.device(run.device), offload_device=torch.device("cpu"), offload_type=options.groups, **extra)
    weights = sum(p.numel() * p.element_size() for p in unet.parameters())
    run.say(f"weights: {weights / 2**30:.2f} GiB in f16")
    config = unet.config
    generator = torch.Generator().manual_seed(options.seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator).to(run.device, torch.float16)

    # Two of each: with and without the prompt, as guidance wants.
    latents, text = random(2, 4, options.size // 8, options.size // 8), random(2, 77, config.cross_attention_dim)
    pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
    more = {"text_embeds": random(2, pooled), "time_ids": torch.tensor([[options.size, options.size, 0, 0, options.size, options.size]] * 2).to(run.device, torch.float16)}
    with torch.no_grad():
        for step in run.steps("UNet step", options.steps):
            noise = unet(latents, 900 - step, encoder_hidden_states=text, added_cond_kwargs=more).sample
            if not noise.isfinite().all() or noise.float().std() < 1e-3:
                raise SystemExit("the result is NaN, infinite or constant")
            latents = latents - 0.1 * noise
    run.finish(weights=weights, latents=latents.float().flatten()[:8].tolist())


if __name__ == "__main__":
    main()
