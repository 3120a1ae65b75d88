//! What waves start with, and where descriptors say so.

use crate::common;

use common::have;
use std::process::Command;
use wave32_exec::{CodeObject, Descriptor, Dispatch, HeapMemory, Options, SCRATCH_BASE, Stop};

/// A kernel that asks for everything and stores its first 20 SGPRs, v0 to v2 of each lane behind them.
fn kernel(wave64: bool) -> String {
    let pair = if wave64 { "vcc" } else { "vcc_lo" };
    format!(
        ".amdgcn_target \"amdgcn-amd-amdhsa--gfx1010\"
        .text
        .globl all
        .p2align 8
        .type all,@function
        all:
            s_load_dwordx2 s[20:21], s[8:9], 0x0
            s_waitcnt lgkmcnt(0)
            s_store_dwordx4 s[0:3], s[20:21], 0x0
            s_store_dwordx4 s[4:7], s[20:21], 0x10
            s_store_dwordx4 s[8:11], s[20:21], 0x20
            s_store_dwordx4 s[12:15], s[20:21], 0x30
            s_store_dwordx4 s[16:19], s[20:21], 0x40
            v_mbcnt_lo_u32_b32 v3, -1, 0
            v_mbcnt_hi_u32_b32 v3, -1, v3
            v_mul_u32_u24 v3, 12, v3
            v_add_co_u32 v4, {pair}, s20, v3
            v_mov_b32 v5, s21
            global_store_dword v[4:5], v0, off offset:128
            global_store_dword v[4:5], v1, off offset:132
            global_store_dword v[4:5], v2, off offset:136
            s_endpgm
        .rodata
        .p2align 6
        .amdhsa_kernel all
            .amdhsa_user_sgpr_private_segment_buffer 1
            .amdhsa_user_sgpr_dispatch_ptr 1
            .amdhsa_user_sgpr_queue_ptr 1
            .amdhsa_user_sgpr_kernarg_segment_ptr 1
            .amdhsa_user_sgpr_dispatch_id 1
            .amdhsa_user_sgpr_flat_scratch_init 1
            .amdhsa_user_sgpr_private_segment_size 1
            .amdhsa_system_sgpr_private_segment_wavefront_offset 1
            .amdhsa_system_sgpr_workgroup_id_x 1
            .amdhsa_system_sgpr_workgroup_id_y 1
            .amdhsa_system_sgpr_workgroup_id_z 1
            .amdhsa_system_sgpr_workgroup_info 1
            .amdhsa_system_vgpr_workitem_id 2
            .amdhsa_next_free_vgpr 23
            .amdhsa_next_free_sgpr 32
            .amdhsa_private_segment_fixed_size 48
            .amdhsa_group_segment_fixed_size 96
            .amdhsa_float_round_mode_32 1
            .amdhsa_float_denorm_mode_16_64 2
            .amdhsa_ieee_mode 0
            .amdhsa_wavefront_size32 {}
        .end_amdhsa_kernel",
        u8::from(!wave64)
    )
}

fn assembled(text: &str, wave64: bool) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (source, object) = (dir.path().join("all.s"), dir.path().join("all.co"));
    std::fs::write(&source, text).expect("written");
    let output = Command::new("clang-19")
        .args(["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1010", "-mcode-object-version=4"])
        .arg(if wave64 { "-mwavefrontsize64" } else { "-mno-wavefrontsize64" })
        .args(["-x", "assembler", "-o"])
        .args([&object, &source])
        .output()
        .expect("clang-19 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(&object).expect("a code object")
}

/// The kernel `all` in memory, whose argument is the place of its results: memory, that place, and how it is launched but for
/// its sizes.
fn loaded(object: &CodeObject) -> (HeapMemory, u64, Dispatch) {
    let (descriptor, at) = object.kernels["all"].clone();
    let mut memory = HeapMemory::new();
    let base = object.load(&mut memory);
    let out = memory.alloc(4096);
    let kernarg = memory.alloc_from(&out.to_le_bytes());
    let kernel_object = base + at;
    let dispatch = Dispatch { name: "all".into(), descriptor, kernel_object, kernarg, ..Dispatch::default() };
    (memory, out, dispatch)
}

/// Mesa's `gl_SubgroupID`.
#[test]
fn waves_are_told_their_number() {
    if !have(&["clang-19"]) {
        return;
    }
    let text = ".amdgcn_target \"amdgcn-amd-amdhsa--gfx1010\"
        .text
        .globl all
        .p2align 8
        .type all,@function
        all:
            s_load_dwordx2 s[4:5], s[0:1], 0x0
            v_lshlrev_b32 v1, 2, v0
            v_mov_b32 v2, s3
            s_waitcnt lgkmcnt(0)
            global_store_dword v1, v2, s[4:5]
            s_endpgm
        .rodata
        .p2align 6
        .amdhsa_kernel all
            .amdhsa_user_sgpr_kernarg_segment_ptr 1
            .amdhsa_system_sgpr_workgroup_info 1
            .amdhsa_next_free_vgpr 4
            .amdhsa_next_free_sgpr 8
            .amdhsa_wavefront_size32 1
        .end_amdhsa_kernel";
    let object = CodeObject::parse(&assembled(text, false)).expect("a code object");
    let (memory, out, dispatch) = loaded(&object);
    let dispatch = Dispatch { grid: [100, 1, 1], workgroup: [100, 1, 1], ..dispatch };
    let executor = wave32_exec::Executor::new(object.target, Some(1));
    executor.run(&memory, &dispatch, &Options::default(), &()).unwrap_or_else(|s| panic!("{s}"));
    for (item, info) in (0..).zip(memory.load_words(out, 100)) {
        assert_eq!(info, u32::from(item < 32) << 31 | (item / 32) << 6 | 4, "work-item {item}");
    }
}

#[test]
fn waves_start_as_the_abi_says() {
    if !have(&["clang-19"]) {
        return;
    }
    for wave64 in [false, true] {
        let object = CodeObject::parse(&assembled(&kernel(wave64), wave64)).expect("a code object");
        let (memory, out, dispatch) = loaded(&object);
        let (descriptor, kernarg) = (&dispatch.descriptor, dispatch.kernarg);
        assert_eq!(descriptor.wave32(), !wave64);
        assert_eq!(descriptor.vgprs(), 24, "23 in granules of 8 or 4");
        assert_eq!((descriptor.private_segment, descriptor.group_segment), (48, 96));
        assert_eq!(
            (descriptor.user_sgprs(), descriptor.mode()),
            (15, 0x100 | 2 << 6 | 1),
            "DX10_CLAMP is default"
        );
        // One workgroup of 3x5x2 work-items at the grid's corner (1,2,3), of 4x5x2 elsewhere.
        let dispatch = Dispatch {
            grid: [7, 15, 8],
            workgroup: [4, 5, 2],
            group_segment: 96,
            private_segment: 48,
            packet: 0x1111_2222_3333_4444,
            queue: 0x5555_6666_7777_8888,
            id: 0x9999_0000_aaaa,
            ..dispatch
        };
        // The last workgroup is the last to store.
        let executor = wave32_exec::Executor::new(object.target, Some(1));
        let report =
            executor.run(&memory, &dispatch, &Options::default(), &()).unwrap_or_else(|s| panic!("{s}"));
        let lanes = if wave64 { 64 } else { 32 };
        assert_eq!(report.workgroups, 2 * 3 * 4);
        let s = memory.load_words(out, 20);
        assert_eq!(u64::from(s[0]) | u64::from(s[1] & 0xffff) << 32, SCRATCH_BASE);
        assert_eq!(
            (s[1] >> 31, s[2], s[3] >> 21 & 7),
            (1, 48 * lanes, if wave64 { 7 } else { 6 }),
            "swizzled, by lanes"
        );
        assert_eq!([s[4], s[5], s[6], s[7]], [0x3333_4444, 0x1111_2222, 0x7777_8888, 0x5555_6666]);
        assert_eq!(u64::from(s[8]) | u64::from(s[9]) << 32, kernarg);
        assert_eq!([s[10], s[11]], [0x0000_aaaa, 0x9999]);
        assert_eq!([s[12], s[13], s[14]], [SCRATCH_BASE as u32, (SCRATCH_BASE >> 32) as u32, 48]);
        assert_eq!([s[15], s[16], s[17]], [1, 2, 3], "workgroup ids");
        // The first wave of so many; scratch of every wave starts at 0. Of two waves the second one stores last.
        let waves: u32 = 30u32.div_ceil(lanes);
        assert_eq!((s[18], s[19]), (1 << 31 | waves, 0));
        let ids = memory.load_words(out + 128, 90);
        for (item, id) in ids.chunks_exact(3).enumerate() {
            let item = item as u32;
            assert_eq!(id, [item % 3, item / 3 % 5, item / 15], "work-item {item}");
        }
    }
}

/// The old header of code object v2 has the same fields at the same places, and sizes of its own.
#[test]
fn old_kernel_headers_are_told_apart() {
    let mut header = [0u8; 256];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &1u32.to_le_bytes()); // version 1.2
    put(4, &2u32.to_le_bytes());
    put(8, &[1, 0, 10, 0, 1, 0, 0, 0]); // AMDGPU, 10.1.0
    put(16, &256u64.to_le_bytes());
    put(48, &0x00ac_0083_u32.to_le_bytes());
    put(52, &0x0000_0090_u32.to_le_bytes());
    put(56, &0x000b_u32.to_le_bytes());
    put(60, &64u32.to_le_bytes());
    put(64, &1024u32.to_le_bytes());
    let d = Descriptor::parse(&header).expect("a header");
    assert_eq!((d.entry, d.private_segment, d.group_segment), (256, 64, 0));
    assert_eq!((d.wave32(), d.vgprs(), d.user_sgprs()), (false, 16, 8));
    assert_eq!(d.mode(), 0x3c0, "IEEE, DX10_CLAMP, denormals of f16 and f64");
    assert!(matches!(Descriptor::parse(&header[..63]), Err(Stop::Dispatch { .. })));
}
