"""Trains an image classifier on one GPU, as torchvision's reference does. Knows of CUDA only."""

import argparse
import os

import torch
import torch.utils.data
import torchvision
from torch import nn
from torchvision.transforms import v2 as transforms


class Stripes(torch.utils.data.Dataset):
    """Images of vertical or horizontal stripes."""

    def __init__(self, count, size):
        self.count, self.size = count, size
        self.transform = transforms.Compose(
            [
                transforms.RandomHorizontalFlip(),
                transforms.ToDtype(torch.float32, scale=True),
                transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
            ]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.randint(0, 64, (3, self.size, self.size), dtype=torch.uint8, generator=generator)
        label = index % 2
        if label:
            image[:, ::2, :] += 128
        else:
            image[:, :, ::2] += 128
        return self.transform(image), label


def accuracy(output, target):
    with torch.inference_mode():
        return output.argmax(1).eq(target).float().mean().mul(100.0).item()


def train_one_epoch(model, criterion, optimizer, loader, device, scaler, args):
    model.train()
    for image, target in loader:
        image, target = image.to(device, non_blocking=True), target.to(device, non_blocking=True)
        with torch.cuda.amp.autocast(enabled=scaler is not None):
            output = model(image)
            loss = criterion(output, target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        print(f"loss {loss.item():.4f} memory {torch.cuda.max_memory_allocated() / 2**20:.0f} MB")


def evaluate(model, criterion, loader, device):
    model.eval()
    total = 0.0
    with torch.inference_mode():
        for image, target in loader:
            image = image.cuda(non_blocking=True)
            target = target.cuda(non_blocking=True)
            total += accuracy(model(image), target)
    torch.cuda.synchronize()
    return total / len(loader)


def main(args):
    if not torch.cuda.is_available():
        raise SystemExit("no GPU")
    device = torch.device(args.device)
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(7)
    torch.cuda.manual_seed_all(7)
    print(f"device {device} {torch.cuda.get_device_name(device)} count {torch.cuda.device_count()}")

    def loader(shuffle):
        return torch.utils.data.DataLoader(
            Stripes(args.images, args.size), batch_size=args.batch_size, shuffle=shuffle, num_workers=args.workers,
            pin_memory=True, persistent_workers=args.workers > 0, multiprocessing_context=args.context,
        )

    model = torchvision.models.get_model(args.model, weights=None, num_classes=2)
    model.to(device)
    if args.data_parallel:
        model = nn.DataParallel(model)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scaler = torch.cuda.amp.GradScaler() if args.amp else None
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    start = 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=args.map_location)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        if scaler:
            scaler.load_state_dict(checkpoint["scaler"])
        start = checkpoint["epoch"] + 1
        print(f"resumed at epoch {start}")
    train, test = loader(True), loader(False)
    for epoch in range(start, args.epochs):
        train_one_epoch(model, criterion, optimizer, train, device, scaler, args)
        scheduler.step()
        print(f"epoch {epoch} lr {scheduler.get_last_lr()[0]:.5f} accuracy {evaluate(model, criterion, test, device):.1f}")
        checkpoint = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "scaler": scaler.state_dict() if scaler else None,
            "epoch": epoch,
        }
        torch.save(checkpoint, os.path.join(args.output, "checkpoint.pth"))
    weight = next(model.parameters())
    assert weight.is_cuda and weight.device.type == "cuda" and str(weight.device) == "cuda:0"
    torch.cuda.empty_cache()
    print("trained")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--context", default=None)
    parser.add_argument("--output", default=".")
    parser.add_argument("--resume", default="")
    parser.add_argument("--map-location", default=None)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--data-parallel", action="store_true")
    main(parser.parse_args())
