/* What tells a library of wave32's: the note. WHICH is its text, e.g. "libMIOpen 0.1.0". */
__asm__(".pushsection .note.wave32, \"a\", @note\n"
        ".balign 4\n"
        ".long 7, 2f - 1f, 1\n"
        ".asciz \"wave32\"\n"
        ".balign 4\n"
        "1: .ascii \"" WHICH "\"\n"
        "2: .balign 4\n"
        ".popsection\n");
int wave32(void) { return 32; }
