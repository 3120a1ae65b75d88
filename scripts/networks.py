"""The networks of scripts/compatibility.py: each with inputs, random weights and nothing to download.

A name leads to a function that makes the network and its inputs, small or at a moderate size for a GPU. Networks of the
transformers and diffusers packages have the architecture of the published ones with fewer layers and channels: the
operators are the same.
"""

import random
from typing import Any, NamedTuple

import torch
from bench_networks import build
from torch import nn


class Case(NamedTuple):
    model: nn.Module
    inputs: Any  # a tuple, or a dict of keywords
    teach: Any = None  # in training, where it takes others


# Image classifiers that take any size, or say which in NATIVE.
CLASSIFIERS = (
    "torchvision/alexnet", "torchvision/convnext_tiny", "torchvision/densenet121", "torchvision/efficientnet_v2_s",
    "torchvision/inception_v3", "torchvision/mobilenet_v3_large", "torchvision/regnet_y_800mf",
    "torchvision/resnet50", "torchvision/shufflenet_v2_x1_0", "torchvision/squeezenet1_1", "torchvision/swin_v2_t",
    "torchvision/vgg11_bn", "torchvision/vit_b_16",
    "timm/eca_nfnet_l0", "timm/edgenext_xx_small", "timm/efficientvit_b0", "timm/fastvit_t8",
    "timm/ghostnet_100", "timm/hrnet_w18_small", "timm/levit_128s", "timm/mobilevit_s", "timm/poolformer_s12",
    "timm/resnest14d", "timm/xcit_nano_12_p16_224",
)  # fmt: skip
NATIVE = ("vit_b_16", "levit_128s", "xcit_nano_12_p16_224")
LEAST = {"inception_v3": 96, "alexnet": 64, "swin_v2_t": 64}


def seeded():
    """Numbers that are the same on each device and each time."""
    return torch.Generator().manual_seed(7)


def noise(*shape):
    return torch.randn(*shape, generator=seeded())


def pixels(*shape):
    return torch.rand(*shape, generator=seeded())


def tokens(high, *shape):
    return torch.randint(3, high, shape, generator=seeded())


def classifier(name, small):
    short = name.split("/")[1]
    size = 224 if short in NATIVE or not small else LEAST.get(short, 64)
    return Case(build(name), (pixels(2 if small else 8, 3, size, size),))


# ---- torchvision: other tasks


def segmentation(name):
    def make(small):
        from torchvision.models import get_model

        model = get_model(name, weights=None, weights_backbone=None)
        return Case(model, (pixels(2 if small else 4, 3, *[64 if small else 256] * 2),))

    return make


def detection(name, size=320, **more):
    def make(small):
        from torchvision.models import detection

        keep = {"min_size": 96, "max_size": 96} if small and "ssd" not in name else {} if "ssd" in name else {"min_size": size, "max_size": size}
        model = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=3, **keep, **more)
        # All candidates take part in the loss: which ones do is drawn otherwise, and devices draw other numbers.
        for part in (getattr(model, "rpn", None), getattr(model, "roi_heads", None)):
            if part is not None:
                part.fg_bg_sampler.batch_size_per_image = 10**6
        if hasattr(model, "roi_heads"):
            model.roi_heads.fg_bg_sampler.positive_fraction = 1.0
            model.rpn.fg_bg_sampler.positive_fraction = 0.5
        side = 96 if small else size
        images = [pixels(3, side, side) for _ in range(1 if small else 2)]
        corners = torch.tensor([[8.0, 10.0, 60.0, 70.0], [30.0, 20.0, 90.0, 64.0]]) * side / 96
        truth = {"boxes": corners, "labels": torch.tensor([1, 2])}
        if "mask" in name:
            truth["masks"] = (pixels(2, side, side) > 0.5).to(torch.uint8)
        if "keypoint" in name:
            truth["keypoints"] = torch.cat([pixels(2, 17, 2) * side / 2 + side / 4, torch.ones(2, 17, 1)], 2)
            truth["labels"] = torch.ones(2, dtype=torch.long)
        return Case(model, (images,), (images, [truth for _ in images]))

    return make


class Dense(nn.Module):
    """The dense part of a detector: everything before boxes are chosen, which a rounding can decide otherwise."""

    def __init__(self, detector):
        super().__init__()
        self.detector = detector

    def forward(self, images, targets=None):
        if self.training:
            return self.detector(images, targets)
        images, _ = self.detector.transform(images)
        features = list(self.detector.backbone(images.tensors).values())
        if hasattr(self.detector, "rpn"):
            heads = self.detector.roi_heads
            boxes = [torch.tensor([[4.0, 6.0, 50.0, 60.0], [20.0, 8.0, 80.0, 44.0]]).to(images.tensors) for _ in images.image_sizes]
            names = self.detector.backbone(images.tensors)
            found = [*self.detector.rpn.head(features), heads.box_predictor(heads.box_head(heads.box_roi_pool(names, boxes, images.image_sizes)))]
            for kind in ("mask", "keypoint"):
                pool = getattr(heads, f"{kind}_roi_pool", None)
                if pool is not None:
                    made = getattr(heads, f"{kind}_head")(pool(names, boxes, images.image_sizes))
                    found.append(getattr(heads, f"{kind}_predictor")(made))
            return found
        return self.detector.head(features)


def dense(name, **more):
    def make(small):
        case = detection(name, **more)(small)
        return case._replace(model=Dense(case.model))

    return make


def video(name, frames=8, size=112):
    def make(small):
        from torchvision.models import get_model

        side = 224 if name.startswith("mvit") else 64 if small else size
        return Case(get_model(name, weights=None), (noise(1 if small else 2, 3, frames, side, side),))

    return make


def raft(small):
    from torchvision.models.optical_flow import raft_small

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = raft_small(weights=None)

        def forward(self, one, two):
            return self.net(one, two, num_flow_updates=3)

    side = 128 if small else 256
    return Case(Flow(), (pixels(1, 3, side, side) * 2 - 1, pixels(1, 3, side, side).flip(3) * 2 - 1))


# ---- diffusers


def diffusion(name, config, inputs):
    def make(small):
        import diffusers

        return Case(getattr(diffusers, name)(**config), inputs(small))

    return make


UNET = {
    "block_out_channels": (64, 128, 256, 256), "layers_per_block": 2, "cross_attention_dim": 128, "attention_head_dim": 4,
    "norm_num_groups": 32,
}  # fmt: skip
SDXL = {
    **UNET, "block_out_channels": (64, 128, 256), "attention_head_dim": (2, 4, 8), "transformer_layers_per_block": (1, 2, 4),
    "use_linear_projection": True, "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), "addition_embed_type": "text_time",
    "addition_time_embed_dim": 16, "projection_class_embeddings_input_dim": 160,
}  # fmt: skip
VAE = {
    "block_out_channels": (64, 128, 256, 256), "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4, "layers_per_block": 2, "latent_channels": 4,
}  # fmt: skip
TIME = torch.tensor([500])


def latent_inputs(channels=4, **more):
    def inputs(small):
        side = 16 if small else 64
        return {"sample": noise(2, channels, side, side), "timestep": TIME, "encoder_hidden_states": noise(2, 77, 128), **more}

    return inputs


def control_inputs(small):
    side = 16 if small else 64
    return {**latent_inputs()(small), "controlnet_cond": pixels(2, 3, side * 8, side * 8)}


def flux_inputs(small):
    side = 8 if small else 32
    rows = torch.zeros(side, side, 3)
    rows[..., 1], rows[..., 2] = torch.arange(side)[:, None], torch.arange(side)
    return {
        "hidden_states": noise(2, side * side, 64), "encoder_hidden_states": noise(2, 32, 128), "pooled_projections": noise(2, 64),
        "timestep": torch.tensor([0.5, 0.5]), "img_ids": rows.reshape(-1, 3), "txt_ids": torch.zeros(32, 3), "guidance": torch.tensor([3.5, 3.5]),
    }  # fmt: skip


DIFFUSION = {
    "diffusers/unet_sd15": ("UNet2DConditionModel", UNET, latent_inputs()),
    "diffusers/unet_sdxl": ("UNet2DConditionModel", SDXL, latent_inputs(
        added_cond_kwargs={"text_embeds": noise(2, 64), "time_ids": torch.tensor([[512.0, 512, 0, 0, 512, 512]] * 2)})),
    "diffusers/controlnet_sd15": ("ControlNetModel", {**UNET, "down_block_types": ("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",)}, control_inputs),
    "diffusers/vae_sd": ("AutoencoderKL", VAE, lambda small: {"sample": pixels(1, 3, *[64 if small else 256] * 2)}),
    "diffusers/taesd": ("AutoencoderTiny", {}, lambda small: {"sample": pixels(2, 3, *[64 if small else 256] * 2)}),
    "diffusers/ddpm": ("UNet2DModel", {"block_out_channels": (64, 128, 128, 256)},
                       lambda small: {"sample": noise(2, 3, *[32 if small else 64] * 2), "timestep": TIME}),
    "diffusers/dit": ("DiTTransformer2DModel", {"num_attention_heads": 4, "attention_head_dim": 64, "num_layers": 4, "sample_size": 32},
                      lambda small: {"hidden_states": noise(2, 4, 32, 32), "timestep": torch.tensor([10, 20]), "class_labels": torch.tensor([1, 2])}),
    "diffusers/pixart": ("PixArtTransformer2DModel",
                         {"num_attention_heads": 4, "attention_head_dim": 32, "num_layers": 4, "cross_attention_dim": 128, "caption_channels": 64, "sample_size": 32},
                         lambda small: {"hidden_states": noise(2, 4, 32, 32), "encoder_hidden_states": noise(2, 32, 64), "timestep": torch.tensor([10, 20]),
                                        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}),
    "diffusers/sd3": ("SD3Transformer2DModel",
                      {"num_attention_heads": 4, "attention_head_dim": 32, "num_layers": 4, "joint_attention_dim": 64, "caption_projection_dim": 128,
                       "pooled_projection_dim": 64, "sample_size": 32, "pos_embed_max_size": 32, "qk_norm": "rms_norm"},
                      lambda small: {"hidden_states": noise(2, 16, 32, 32), "encoder_hidden_states": noise(2, 32, 64), "pooled_projections": noise(2, 64),
                                     "timestep": torch.tensor([10, 20])}),
    "diffusers/flux": ("FluxTransformer2DModel",
                       {"num_layers": 2, "num_single_layers": 4, "attention_head_dim": 32, "num_attention_heads": 4, "joint_attention_dim": 128,
                        "pooled_projection_dim": 64, "axes_dims_rope": (8, 12, 12), "guidance_embeds": True}, flux_inputs),
    "diffusers/wan": ("WanTransformer3DModel",
                      {"num_attention_heads": 4, "attention_head_dim": 32, "text_dim": 64, "freq_dim": 32, "ffn_dim": 256, "num_layers": 4},
                      lambda small: {"hidden_states": noise(1, 16, 5, *[16 if small else 32] * 2), "timestep": TIME, "encoder_hidden_states": noise(1, 32, 64)}),
}  # fmt: skip


# ---- transformers


def transformer(model, config, settings, inputs):
    def make(small):
        import transformers

        settings_now = {key: made() if callable(made) else made for key, made in settings.items()}
        made = getattr(transformers, config)(**settings_now)
        for key, value in made.to_dict().items():
            if "drop" in key and isinstance(value, float):
                setattr(made, key, 0.0)
        return Case(getattr(transformers, model)(made), inputs(small))

    return make


def resnet_backbone():
    from transformers import ResNetConfig

    return ResNetConfig(embedding_size=32, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], out_features=["stage4"])


WIDE = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}


def text(high=1000, **more):
    return lambda small: {"input_ids": tokens(high, 2, 32 if small else 256), **more}


def picture(side=64, full=224, batch=4, **more):
    return lambda small: {"pixel_values": noise(2 if small else batch, 3, *[side if small else full] * 2), **more}


TRANSFORMERS = {
    "transformers/bert": ("BertModel", "BertConfig", {**WIDE, "vocab_size": 1000}, text()),
    "transformers/gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 256, "n_layer": 4, "n_head": 4, "vocab_size": 1000}, text(use_cache=False)),
    "transformers/llama": ("LlamaForCausalLM", "LlamaConfig", {**WIDE, "num_key_value_heads": 2, "vocab_size": 1000}, text(use_cache=False)),
    "transformers/t5": ("T5ForConditionalGeneration", "T5Config", {"d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 3, "num_heads": 4, "vocab_size": 1000},
                        text(decoder_input_ids=tokens(1000, 2, 16), use_cache=False)),
    "transformers/bart": ("BartModel", "BartConfig",
                          {"d_model": 256, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                           "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "vocab_size": 1000}, text(use_cache=False)),
    "transformers/whisper": ("WhisperForConditionalGeneration", "WhisperConfig",
                             {"d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                              "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "vocab_size": 1000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                              "decoder_start_token_id": 1},
                             lambda small: {"input_features": noise(1, 80, 3000), "decoder_input_ids": tokens(1000, 1, 16), "use_cache": False}),
    "transformers/wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", {**WIDE, "apply_spec_augment": False},
                              lambda small: {"input_values": noise(1, 4000 if small else 16000)}),
    "transformers/clip": ("CLIPModel", "CLIPConfig",
                          {"text_config": lambda: {**WIDE, "vocab_size": 1000, "eos_token_id": 999}, "vision_config": lambda: {**WIDE, "image_size": 64, "patch_size": 8}},
                          picture(64, 64, input_ids=tokens(999, 4, 32))),
    "transformers/dinov2": ("Dinov2Model", "Dinov2Config", {**WIDE, "image_size": 224, "patch_size": 14, "mlp_ratio": 4}, picture(56)),
    "transformers/segformer": ("SegformerForSemanticSegmentation", "SegformerConfig", {"num_labels": 19}, picture()),
    "transformers/dpt": ("DPTForDepthEstimation", "DPTConfig",
                         {**WIDE, "image_size": 224, "patch_size": 16, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [32, 64, 128, 128], "fusion_hidden_size": 64},
                         picture(64)),
    "transformers/detr": ("DetrForObjectDetection", "DetrConfig",
                          {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_config": resnet_backbone, "encoder_layers": 2,
                           "decoder_layers": 2, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "num_queries": 30}, picture(96, 320, 2)),
    "transformers/yolos": ("YolosForObjectDetection", "YolosConfig", {**WIDE, "image_size": [64, 64], "num_detection_tokens": 20}, picture(64, 64)),
    "transformers/sam": ("SamModel", "SamConfig",
                         {"vision_config": lambda: {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "image_size": 128, "patch_size": 8,
                                                    "output_channels": 64, "mlp_dim": 256, "num_pos_feats": 32, "global_attn_indexes": [1, 3], "window_size": 7},
                          "prompt_encoder_config": lambda: {"hidden_size": 64, "image_size": 128, "patch_size": 8, "mask_input_channels": 16},
                          "mask_decoder_config": lambda: {"hidden_size": 64, "mlp_dim": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "iou_head_hidden_dim": 64}},
                         picture(128, 128, 2, input_points=torch.tensor([[[[40.0, 50.0]]]]).expand(2, 1, 1, 2))),
}  # fmt: skip

OTHERS = {
    "torchvision/deeplabv3_mobilenet_v3_large": segmentation("deeplabv3_mobilenet_v3_large"),
    "torchvision/fasterrcnn_resnet50_fpn": dense("fasterrcnn_resnet50_fpn"),
    "torchvision/maskrcnn_resnet50_fpn": dense("maskrcnn_resnet50_fpn"),
    "torchvision/keypointrcnn_resnet50_fpn": dense("keypointrcnn_resnet50_fpn"),
    "torchvision/retinanet_resnet50_fpn": dense("retinanet_resnet50_fpn"),
    "torchvision/fcos_resnet50_fpn": dense("fcos_resnet50_fpn"),
    "torchvision/ssd300_vgg16": dense("ssd300_vgg16"),
    "torchvision/ssdlite320_mobilenet_v3_large": dense("ssdlite320_mobilenet_v3_large"),
    "torchvision/r3d_18": video("r3d_18"),
    "torchvision/mvit_v2_s": video("mvit_v2_s", frames=16),
    "torchvision/raft_small": raft,
    **{name: diffusion(*parts) for name, parts in DIFFUSION.items()},
    **{name: transformer(*parts) for name, parts in TRANSFORMERS.items()},
}
NAMES = (*CLASSIFIERS, *OTHERS)


def case(name, small):
    """The network and its inputs; the same weights each time."""
    random.seed(0)
    torch.manual_seed(0)
    made = OTHERS[name](small) if name in OTHERS else classifier(name, small)
    # Weights that begin as zeros (heads, gates) would hide everything behind them.
    for parameter in made.model.parameters():
        if parameter.dim() > 1 and not parameter.any():
            nn.init.normal_(parameter, std=0.02)
    return made
