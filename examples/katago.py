#!/usr/bin/env python3
"""A network for Go of KataGo's kind: positions per second, and training on random games.

Ten residual blocks of 128 channels on 19x19 (KataGo's b10c128), three of them with global pooling, a policy and a value
head. Inference in f32 and f16, then training in f32 on positions of random games: the policy learns the next move,
the value learns who has more stones. The weights are random, so the moves are no good; the work is that of a real one.
"""

import math

import torch
import torch.nn.functional as F
from common import Run, arguments, parsed
from torch import nn

PLANES, NUMBERS = 22, 19


def pooled(x):
    """Mean, mean scaled by the board's width, and maximum of each channel."""
    mean = x.mean((2, 3))
    return torch.cat([mean, mean * (x.shape[-1] - 14) / 10, x.amax((2, 3))], 1)


class Block(nn.Module):
    """A residual block; with `pool` channels, these go through global pooling and add to the others."""

    def __init__(self, width, pool=0):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(width), nn.Conv2d(width, width - pool, 3, padding=1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(width - pool), nn.Conv2d(width - pool, width, 3, padding=1, bias=False)
        self.pool = None
        if pool:
            self.pool = nn.Conv2d(width, pool, 3, padding=1, bias=False)
            self.pool_norm, self.pool_linear = nn.BatchNorm2d(pool), nn.Linear(3 * pool, width - pool, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(x))
        out = self.conv1(y)
        if self.pool:
            out = out + self.pool_linear(pooled(F.relu(self.pool_norm(self.pool(y)))))[:, :, None, None]
        return x + self.conv2(F.relu(self.norm2(out)))


class Network(nn.Module):
    def __init__(self, blocks, width):
        super().__init__()
        head = width // 4
        self.planes, self.numbers = nn.Conv2d(PLANES, width, 5, padding=2, bias=False), nn.Linear(NUMBERS, width, bias=False)
        self.blocks = nn.Sequential(*(Block(width, width // 4 if i % 4 == 2 else 0) for i in range(blocks)))
        self.norm = nn.BatchNorm2d(width)
        self.policy1, self.policy2 = nn.Conv2d(width, head, 1, bias=False), nn.Conv2d(width, head, 1, bias=False)
        self.policy_linear, self.policy_norm = nn.Linear(3 * head, head, bias=False), nn.BatchNorm2d(head)
        self.policy3, self.passing = nn.Conv2d(head, 1, 1, bias=False), nn.Linear(3 * head, 1, bias=False)
        self.value1 = nn.Conv2d(width, head, 1)
        self.value2, self.value3 = nn.Linear(3 * head, 2 * head), nn.Linear(2 * head, 3)

    def forward(self, planes, numbers):
        x = self.planes(planes) + self.numbers(numbers)[:, :, None, None]
        x = F.relu(self.norm(self.blocks(x)))
        summary = pooled(F.relu(self.policy2(x)))
        y = F.relu(self.policy_norm(self.policy1(x) + self.policy_linear(summary)[:, :, None, None]))
        policy = torch.cat([self.policy3(y).flatten(1), self.passing(summary)], 1)
        value = self.value3(F.relu(self.value2(pooled(F.relu(self.value1(x))))))
        return policy, value


def games(count, board, seed):
    """Positions of random games, without captures: planes, numbers, the next move, and who has more stones."""
    generator = torch.Generator().manual_seed(seed)
    cells = board * board
    order = torch.rand(count, cells, generator=generator).argsort(1)  # where each game plays its moves
    played = torch.randint(8, cells - 1, (count,), generator=generator)
    turn = torch.empty_like(order).scatter_(1, order, torch.arange(cells).expand(count, -1))  # when a cell is played
    on_board = turn < played[:, None]
    # A third of the stones is gone again: there is something to count.
    on_board &= torch.rand(count, cells, generator=generator) < 2 / 3
    own = on_board & ((turn % 2) == (played % 2)[:, None])
    other = on_board & ~own
    planes = torch.zeros(count, PLANES, cells)
    planes[:, 0], planes[:, 1], planes[:, 2] = 1, own, other
    for i in range(5):  # the last five moves
        planes[:, 9 + i] = turn == (played - 1 - i)[:, None]
    numbers = torch.zeros(count, NUMBERS)
    numbers[:, 0] = (played % 2).float()
    move = order.gather(1, played[:, None])[:, 0]
    winner = (own.sum(1) - other.sum(1)).sign() + 1
    return planes.unflatten(2, (board, board)), numbers, move, winner


def inference(run, options, network, planes, numbers, name):
    with torch.no_grad():
        for _ in run.steps(f"inference, {name}", options.steps):
            out = network(planes, numbers)
    speed = options.batch / run.seconds[f"inference, {name}"]
    run.say(f"{name}: {speed:.0f} positions a second")
    return [t.float().cpu() for t in out], speed


def main():
    parser = arguments(__doc__)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--board", type=int, default=19)
    parser.add_argument("--batch", type=int, default=128, help="positions at a time")
    parser.add_argument("--steps", type=int, default=100, help="of inference, each type")
    parser.add_argument("--train-steps", type=int, default=40)
    options = parsed(parser, blocks=4, channels=32, batch=8, steps=3, train_steps=12)
    run = Run(options)
    network = Network(options.blocks, options.channels).to(run.device).eval()
    run.say(f"b{options.blocks}c{options.channels}: {sum(p.numel() for p in network.parameters()) / 1e6:.1f} million weights")
    planes, numbers, move, winner = (t.to(run.device) for t in games(options.batch, options.board, options.seed))
    exact, fast = inference(run, options, network, planes, numbers, "f32")
    half = Network(options.blocks, options.channels).to(run.device, torch.float16).eval()
    half.load_state_dict(network.state_dict())
    close, faster = inference(run, options, half, planes.half(), numbers.half(), "f16")
    apart = max(((a - b).abs().max() / a.abs().max()).item() for a, b in zip(exact, close))
    run.say(f"f16 differs from f32 by {apart:.1e} of the largest output")
    if not apart < 0.05:
        raise SystemExit("the outputs of f16 are not those of f32")
    del half
    optimizer = torch.optim.SGD(network.train().parameters(), lr=0.02, momentum=0.9)
    losses = []
    for _ in run.steps("training", options.train_steps):
        policy, value = network(planes, numbers)
        loss = F.cross_entropy(policy, move) + 1.5 * F.cross_entropy(value, winner)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses).tolist()
    run.say(f"training: loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last, {options.batch / run.seconds['training']:.0f} positions a second")
    if not (math.isfinite(losses[-1]) and losses[-1] < losses[0]):
        raise SystemExit("the loss did not fall")
    run.finish(positions_per_second={"f32": fast, "f16": faster, "training": options.batch / run.seconds["training"]},
               losses=losses, policy=exact[0][0, :8].tolist(), value=exact[1][0].tolist())  # fmt: skip


if __name__ == "__main__":
    main()
