"""The cells of LSTM and GRU, which torch asks of accelerators in one piece and the CPU does not have so."""

from __future__ import annotations

import torch

from wave32._libraries import library

Tensor = torch.Tensor


def _gates(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


def _lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    gates = _gates(input_gates, input_bias) + _gates(hidden_gates, hidden_bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def _lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    i, f, g, o = workspace.chunk(4, 1)
    tanh = cy.tanh()
    grad_c = torch.zeros_like(cy) if grad_cy is None else grad_cy
    grad_o = torch.zeros_like(cy)
    if grad_hy is not None:
        grad_c = grad_c + grad_hy * o * (1 - tanh * tanh)
        grad_o = grad_hy * tanh * o * (1 - o)
    grad_gates = torch.cat(
        [grad_c * g * i * (1 - i), grad_c * cx * f * (1 - f), grad_c * i * (1 - g * g), grad_o], 1
    )
    return grad_gates, grad_c * f, grad_gates.sum(0) if has_bias else None


def _gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    ir, iz, new_input = _gates(input_gates, input_bias).chunk(3, 1)
    hr, hz, new_hidden = _gates(hidden_gates, hidden_bias).chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (new_input + r * new_hidden).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, new_hidden], 1)


def _gru_cell_backward(grad_hy, workspace, has_bias):
    r, z, n, hx, new_hidden = workspace.chunk(5, 1)
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_z = grad_hy * (hx - n) * z * (1 - z)
    grad_r = grad_n * new_hidden * r * (1 - r)
    grad_input = torch.cat([grad_r, grad_z, grad_n], 1)
    grad_hidden = torch.cat([grad_r, grad_z, grad_n * r], 1)
    biases = (grad_input.sum(0), grad_hidden.sum(0)) if has_bias else (None, None)
    return grad_input, grad_hidden, grad_hy * z, *biases


def register() -> None:
    """Registers the four."""
    wave = library("aten", "PrivateUse1")
    wave.impl("_thnn_fused_lstm_cell", _lstm_cell)
    wave.impl("_thnn_fused_lstm_cell_backward_impl", _lstm_cell_backward)
    wave.impl("_thnn_fused_gru_cell", _gru_cell)
    wave.impl("_thnn_fused_gru_cell_backward", _gru_cell_backward)
