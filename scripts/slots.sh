#!/bin/sh
# Prints assembly for x86-64: each of libMIOpen's exported functions as a jump through a slot, which at the first call asks
# `wave32_resolve` (crates/miopen/src/vendor/next.rs) where it leads; and the note by which wave32's libraries are known.
#
#   scripts/slots.sh VERSION < names
set -eu

cat <<EOF
    .section .note.wave32, "a", @note
    .balign 4
    .long 7, 2f - 1f, 1
    .asciz "wave32"
    .balign 4
1:  .ascii "libMIOpen $1"
2:  .balign 4

    .macro exported name
    .section .text.\name, "ax", @progbits
    .globl \name
    .type \name, @function
    .balign 16
\name:
    endbr64
    jmp *slot_\name(%rip)
first_\name:
    endbr64
    leaq slot_\name(%rip), %r11
    jmp wave32_first
    .size \name, . - \name
    .section .data.slot.\name, "aw", @progbits
    .balign 8
slot_\name:
    .quad first_\name, wave32_\name, name_\name
    .section .rodata.\name, "a", @progbits
name_\name:
    .asciz "\name"
    .endm

    # The slot is in r11. Every register that may hold an argument is kept; the stack is 16-aligned at the call.
    .section .text.wave32_first, "ax", @progbits
    .type wave32_first, @function
wave32_first:
    pushq %rbp
    movq %rsp, %rbp
    andq \$-16, %rsp
    subq \$192, %rsp
    movq %rdi, 128(%rsp)
    movq %rsi, 136(%rsp)
    movq %rdx, 144(%rsp)
    movq %rcx, 152(%rsp)
    movq %r8, 160(%rsp)
    movq %r9, 168(%rsp)
    movq %rax, 176(%rsp)
EOF
for n in 0 1 2 3 4 5 6 7; do echo "    movups %xmm$n, $((16 * n))(%rsp)"; done
cat <<EOF
    movq %r11, %rdi
    call wave32_resolve
    movq %rax, %r11
EOF
for n in 0 1 2 3 4 5 6 7; do echo "    movups $((16 * n))(%rsp), %xmm$n"; done
cat <<EOF
    movq 128(%rsp), %rdi
    movq 136(%rsp), %rsi
    movq 144(%rsp), %rdx
    movq 152(%rsp), %rcx
    movq 160(%rsp), %r8
    movq 168(%rsp), %r9
    movq 176(%rsp), %rax
    leave
    jmp *%r11
    .size wave32_first, . - wave32_first
    .section .note.GNU-stack, "", @progbits

EOF
while read -r name; do echo "    exported $name"; done
