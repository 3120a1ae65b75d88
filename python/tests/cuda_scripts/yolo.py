"""An ultralytics detector with random weights: a prediction and a training step, on `cuda`."""

import torch
from ultralytics import YOLO
from ultralytics.cfg import get_cfg
from ultralytics.utils.torch_utils import select_device

device = select_device("cuda:0", verbose=False)
yolo = YOLO("yolov8n.yaml")
yolo.to(device)
image = torch.rand(1, 3, 64, 64, device=device)
results = yolo.predict(image, device=0, imgsz=64, verbose=False)
print("predicted", len(results), results[0].boxes.data.device)

model = yolo.model.cuda().train()
model.args = get_cfg(overrides={"task": "detect"})
batch = {
    "img": image,
    "batch_idx": torch.tensor([0, 0]),
    "cls": torch.tensor([[1.0], [2.0]]),
    "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.3, 0.3, 0.2, 0.2]]),
}
for parameter in model.parameters():
    parameter.requires_grad_(True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
scaler = torch.amp.GradScaler("cuda")
with torch.amp.autocast("cuda"):
    loss, items = model(batch)
    loss = loss.sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
assert loss.is_cuda and torch.isfinite(loss)
print("trained", float(loss))
print(torch.wave.fallbacks() if hasattr(torch, "wave") else "")
